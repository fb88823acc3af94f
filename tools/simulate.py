"""Says what a run will consume: chomp-simulate, from a checkout."""

from chomp_data.commands import scripts

if __name__ == "__main__":
  scripts.simulate()
