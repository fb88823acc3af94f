# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""`tf.train.Example`, without TensorFlow: its messages, for protobuf's library.

They are those of tensorflow/core/example's example.proto and feature.proto. A
field that is not in them is an error, so that text is not taken for an Example.
"""

import functools
from typing import Any

# Of each message the fields, numbered from 1: name, type, whether it repeats.
_MESSAGES = {
  "BytesList": (("value", "BYTES", True),),
  "FloatList": (("value", "FLOAT", True),),
  "Int64List": (("value", "INT64", True),),
  "Feature": (
    ("bytes_list", "BytesList", False),
    ("float_list", "FloatList", False),
    ("int64_list", "Int64List", False),
  ),
  "Entry": (("key", "STRING", False), ("value", "Feature", False)),
  "Features": (("feature", "Entry", True),),
  "Example": (("features", "Features", False),),
}


@functools.cache
def message_class() -> Any:
  """Returns the class of Example, whose features are a list of entries."""
  # Not at import: only such records need it.
  from google.protobuf import descriptor_pb2
  from google.protobuf import descriptor_pool
  from google.protobuf import message_factory

  field_type: Any = descriptor_pb2.FieldDescriptorProto
  file: Any = descriptor_pb2.FileDescriptorProto(
    name="example.proto", package="example", syntax="proto3"
  )
  for name, fields in _MESSAGES.items():
    message = file.message_type.add(name=name)
    for number, (field, kind, repeats) in enumerate(fields, 1):
      label = "LABEL_REPEATED" if repeats else "LABEL_OPTIONAL"
      added = message.field.add(
        name=field, number=number, label=getattr(field_type, label)
      )
      if kind in _MESSAGES:
        added.type_name = f".example.{kind}"
      else:
        added.type = getattr(field_type, f"TYPE_{kind}")
      if name == "Feature":
        added.oneof_index = 0
    if name == "Feature":
      message.oneof_decl.add(name="kind")
  pool = descriptor_pool.DescriptorPool()
  pool.Add(file)
  return message_factory.GetMessageClass(
    pool.FindMessageTypeByName("example.Example")
  )


def is_example(data: bytes) -> bool:
  """Whether bytes are an Example that has a feature."""
  try:
    return bool(parse(data))
  except ValueError:
    return False


def parse(data: bytes) -> dict[str, Any]:
  """Returns the features of an Example by name.

  Returns:
    Of each feature its value, bytes, float or int; a list of them unless it is
    one; None where it has none.

  Raises:
    ValueError: If it is no such message.
  """
  from google.protobuf import message

  try:
    example = message_class().FromString(data)
  except message.DecodeError as error:
    raise ValueError(f"{error}") from None
  num_bytes = example.ByteSize()
  example.DiscardUnknownFields()
  if example.ByteSize() != num_bytes:
    raise ValueError("fields of another message")
  features: dict[str, Any] = {}
  for entry in example.features.feature:
    kind = entry.value.WhichOneof("kind")
    values = list(getattr(entry.value, kind).value) if kind else []
    features[entry.key] = values[0] if len(values) == 1 else values or None
  return features
