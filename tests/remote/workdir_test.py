"""A work directory in a bucket: where Orbax can write, and else an error."""

import pytest

from chomp_data import schema
from tests import in_process

train = in_process.imported("chomp_data.commands.train")


@pytest.mark.parametrize("url", ["s3://bucket/run", "http://host/run"])
def test_a_work_directory_that_orbax_cannot_write_to_is_refused(url):
  with pytest.raises(schema.ConfigError, match=f"--workdir` must .*{url}"):
    train._place(url)


def test_a_directory_is_made_absolute(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert str(train._place("runs/x")) == str(tmp_path / "runs" / "x")
