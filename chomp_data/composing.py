"""From checked options to row sources: the stores, their rows, their order."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

from chomp_data import options as options_lib
from chomp_data import schema
from chomp_data import sources as sources_lib
from chomp_data import stores
from chomp_data.sources import mix_options
from chomp_data.sources import opening

# The source of each kind of options.
_SOURCES: dict[type, Callable[..., sources_lib.RowSource]] = {
  sources_lib.SpliceOptions: sources_lib.SpliceSource,
  sources_lib.MultiSpliceOptions: sources_lib.SpliceSource,
  sources_lib.SequentialOptions: sources_lib.SequentialSource,
  sources_lib.BinOptions: sources_lib.BinSource,
}


def row_sources(
  options: options_lib.DataOptions,
  sources: Mapping[str, options_lib.SourceOptions],
  joining: Sequence[str],
) -> dict[str, sources_lib.ShuffledSource]:
  """Opens stores and orders their rows; reads no token.

  Args:
    options: The run.
    sources: Its sources by name.
    joining: Their names in the order in which they join.

  Returns:
    By name, each source in its order; `rows` is the source itself.

  Raises:
    ConfigError: If options do not fit the stores.
    StoreError: If stores cannot be opened; one line names each.
  """
  opened = opening.Opening()
  out: dict[str, sources_lib.ShuffledSource] = {}
  # Each takes room for one window, in the order in which they join: a source
  # that is added later never narrows the windows of those before it.
  room = options.shuffle_cache_bytes
  for name in joining:
    path = f"{options_lib.PATH}.sources.{name}"
    with opened.source(path):
      own = out[name] = sources_lib.ShuffledSource(
        _row_source(name, sources[name], options),
        sources[name].shuffle,
        options.seed,
        cache_bytes=max(room, 0),
        path=f"{path}.shuffle",
      )
      if own.windows is not None:
        room -= own.windows.window_bytes
  opened.check()
  # What is left keeps more windows, which changes no order.
  blocks = [own for own in out.values() if own.windows is not None]
  for own in blocks:
    assert own.windows is not None
    own.keep_windows(own.windows.window_bytes + max(room, 0) // len(blocks))
  return out


def run_rows(
  run: options_lib.RunOptions,
) -> tuple[sources_lib.RowSource, dict[str, sources_lib.RowSource]]:
  """Returns a run's rows in order, and its sources by name and number.

  Args:
    run: The whole of `config.data`, checked.

  Raises:
    ConfigError: If options do not fit the stores.
    StoreError: If stores cannot be opened; one line names each.
  """
  names = list(run.sources)
  if run.mix is not None:
    weights = {name: own.weight for name, own in run.sources.items()}
    names = mix_options.in_order_of_joining(
      run.sources, run.mix.all_stages(weights)
    )
  ordered = row_sources(run.data, run.sources, names)
  if run.mix is None:
    (rows,) = ordered.values()
  else:
    opening.check_tokenizers(
      {name: own.store for name, own in ordered.items()},
      options_lib.PATH,
      run.mix.allow_tokenizer_differences,
    )
    rows = sources_lib.MixtureSource(
      ordered,
      run.mix,
      seed=run.data.seed,
      global_batch_size=run.data.global_batch_size,
      epochs=run.data.epochs,
      own_weights={n: own.weight for n, own in run.sources.items()},
      max_epochs={n: own.max_epochs for n, own in run.sources.items()},
      path=f"{options_lib.PATH}.mix",
    )
  return rows, rows.parts()


def _row_source(
  name: str,
  source: options_lib.SourceOptions,
  options: options_lib.DataOptions,
) -> sources_lib.RowSource:
  path = f"{options_lib.PATH}.sources.{name}"
  if source.array_record is None:
    store = stores.open_store(source.store)
  else:
    store = stores.open_array_records(source.store, source.array_record)
  if not store.num_documents:
    raise schema.ConfigError(
      [
        f"`{path}.store` must hold a document, got an empty store at"
        f" {source.store}. Prepare it from text."
      ]
    )
  rows = source.rows
  if isinstance(rows, sources_lib.WindowOptions):
    rows = rows.as_splices(options.seq_len)
  return _SOURCES[type(rows)](
    store,
    rows,
    seq_len=options.seq_len,
    seed=options.seed,
    name=name,
    path=f"{path}.rows",
  )
