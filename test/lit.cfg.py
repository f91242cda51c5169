# The lit suite. Tools come from build/bin, or from --param build=DIR; FileCheck and not from LLVM,
# python3 from Debian, since it has NumPy.
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import quoted_paths  # noqa: E402  (found through the line above)

root = os.path.dirname(here)
config.name = "cinch"
config.test_format = quoted_paths.QuotedPaths(root)
config.suffixes = [".mlir", ".cinch", ".test"]
config.excludes = ["unit", "oracle", "fuzz", "kernels", "Inputs", "CMakeLists.txt"]
config.test_source_root = here
build = os.path.abspath(lit_config.params.get("build", os.path.join(root, "build")))
config.test_exec_root = os.path.join(build, "test")
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(build, "bin"), "/usr/lib/llvm-22/bin", "/usr/bin", os.environ.get("PATH", "")])
config.environment["XDG_CACHE_HOME"] = os.path.join(config.test_exec_root, "cache")
config.environment["XDG_CONFIG_HOME"] = os.path.join(config.test_exec_root, "config")
