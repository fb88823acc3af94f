# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Faults do no harm, and each would without what keeps it from that."""

import pytest

from tests.faults import __main__ as command
from tests.faults import harness

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", command.FAULTS)
def test_a_fault_does_no_harm(name, tmp_path):
  fault = command.FAULTS[name]
  found = harness.run(fault, fault.few, tmp_path)
  assert found.cases == fault.few
  assert not found.bad, found


@pytest.mark.parametrize("name", command.FAULTS)
def test_a_fault_shows_without_its_guard(name, tmp_path):
  fault = command.FAULTS[name]
  found = harness.run(fault, fault.few, tmp_path, guarded=False)
  assert found.bad, found
