"""The classes and functions of the stand-in for `osmosis_ai`; each module lists its public names."""
