"""Filler token ids: from the store's tokenizer, or as the options say."""

from chomp_data import schema
from chomp_data import stores
from chomp_data.ops import placing
from chomp_data.sources import options as options_lib


def row_layout(
  store: stores.Store,
  options: options_lib.FillerOptions,
  seq_len: int,
  eos_before_document: bool,
  path: str,
) -> placing.RowLayout:
  """Returns the layout of rows of one document each.

  Args:
    store: Its tokenizer gives the ids that the options do not.
    options: Which filler, and ids that override the tokenizer's.
    seq_len: Positions of a row.
    eos_before_document: Whether EOS stands left of a shifted document.
    path: Dotted path of the options, for messages.

  Returns:
    The layout, positions as columns.

  Raises:
    ConfigError: If an id that is needed is unknown or out of the vocabulary.
  """
  problems: list[str] = []

  def token_id(kind: str) -> int:
    own = getattr(options, f"{kind}_token_id")
    # An id of 0 is an id: only None means that there is none.
    value = (
      own if own is not None else getattr(store.tokenizer_info, f"{kind}_id")
    )
    if value is None:
      problems.append(
        f"`{path}.{kind}_token_id` must be set, because the tokenizer of"
        f" {store.path} has no {kind} token. Set it, or choose another"
        " filler."
      )
      return 0
    if value >= store.vocab_size:
      problems.append(
        schema.bad_value(
          f"{path}.{kind}_token_id",
          f"below the vocabulary size {store.vocab_size}",
          value,
          "Correct it.",
        )
      )
    return value

  layout = placing.RowLayout(
    seq_len=seq_len,
    filler_id=token_id(options.filler),
    trailing_filler_in_segment=options.trailing_filler_in_segment,
    token_before_document=token_id("eos") if eos_before_document else None,
  )
  if problems:
    raise schema.ConfigError(problems)
  return layout
