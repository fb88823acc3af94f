# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Threads and processes: stopped and waited for, watched, cleaned up after."""
