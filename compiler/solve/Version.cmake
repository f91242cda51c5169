# Writes OUT: the function NAME in NAMESPACE, declared in HEADER, which returns a hash of FILES (separated by |), so that what other
# versions of these sources have made is not taken over.
string(REPLACE "|" ";" FILES "${FILES}")
set(all "")
foreach(file ${FILES})
  file(SHA256 ${file} hash)
  string(APPEND all ${hash})
endforeach()
string(SHA256 version "${all}")
file(WRITE ${OUT} "// Made by compiler/solve/Version.cmake.\n#include \"${HEADER}\"\n"
                  "const char *${NAMESPACE}::${NAME}() { return \"${version}\"; }\n")
