"""Folders of `.msg` files come in, type support in the running environment goes out.

`packages` finds and checks definitions, `installed` knows what is there, `recipe` writes what is to
be built, `build` has it built and installed, `add` puts these in order. For ROS from wheels alone:
under a sourced ROS, colcon does all this.
"""
