"""Says which documents cost more: chomp-losses, from a checkout."""

from chomp_data.commands import scripts

if __name__ == "__main__":
  scripts.losses()
