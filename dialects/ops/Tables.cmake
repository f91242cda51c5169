# The ops as plain data, made from the definitions, and the shape rules: a library without MLIR.
file(GLOB definitions CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/nn/*.td)
set(generated ${CMAKE_CURRENT_BINARY_DIR}/ops)
file(MAKE_DIRECTORY ${generated})
find_program(LLVM_TBLGEN llvm-tblgen HINTS ${LLVM_TOOLS_BINARY_DIR} REQUIRED)
add_custom_command(OUTPUT ${generated}/Ops.inc
  COMMAND ${LLVM_TBLGEN} --dump-json -I ${CMAKE_SOURCE_DIR} -I ${LLVM_LIBRARY_DIR}/../include
          ${CMAKE_CURRENT_SOURCE_DIR}/nn/NNOps.td -o ${generated}/definitions.json
  COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/ops/table.py ${generated}/definitions.json ${generated}/Ops.inc
  DEPENDS ${definitions} ${CMAKE_CURRENT_SOURCE_DIR}/ops/table.py VERBATIM)
add_custom_target(cinch_ops_table DEPENDS ${generated}/Ops.inc)

add_library(cinch_ops STATIC ${OPS_SOURCES})
add_dependencies(cinch_ops cinch_ops_table)
