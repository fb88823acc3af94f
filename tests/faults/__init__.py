# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Faults, injected and counted; `python -m tests.faults --help`."""
