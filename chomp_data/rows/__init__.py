# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows: spans of documents, their layout, masks and transfer to devices."""
