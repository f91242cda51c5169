# Writes OUT: solverVersion(), a hash of FILES (separated by |), so that plans found by other solvers are not taken over.
string(REPLACE "|" ";" FILES "${FILES}")
set(all "")
foreach(file ${FILES})
  file(SHA256 ${file} hash)
  string(APPEND all ${hash})
endforeach()
string(SHA256 version "${all}")
file(WRITE ${OUT} "// Made by compiler/solve/Version.cmake.\n#include \"compiler/solve/PlanCache.h\"\n"
                  "const char *cinch::solve::solverVersion() { return \"${version}\"; }\n")
