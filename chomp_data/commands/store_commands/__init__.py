"""The subcommands of `chomp-stores`, a file each."""
