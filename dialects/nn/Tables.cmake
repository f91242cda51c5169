# Tables of the nn dialect, generated into the mirrored build folder, and its library.
set(LLVM_TARGET_DEFINITIONS nn/Interfaces.td)
mlir_tablegen(nn/Interfaces.h.inc -gen-op-interface-decls)
mlir_tablegen(nn/Interfaces.cpp.inc -gen-op-interface-defs)
set(LLVM_TARGET_DEFINITIONS nn/NNOps.td)
mlir_tablegen(nn/NNDialect.h.inc -gen-dialect-decls -dialect=nn)
mlir_tablegen(nn/NNDialect.cpp.inc -gen-dialect-defs -dialect=nn)
mlir_tablegen(nn/NNEnums.h.inc -gen-enum-decls)
mlir_tablegen(nn/NNEnums.cpp.inc -gen-enum-defs)
mlir_tablegen(nn/NNAttrs.h.inc -gen-attrdef-decls -attrdefs-dialect=nn)
mlir_tablegen(nn/NNAttrs.cpp.inc -gen-attrdef-defs -attrdefs-dialect=nn)
# The code of the ops takes as long to compile as all else here together: it is in so many sources, which compile side by side.
set(shards 2)
mlir_tablegen(nn/NNOps.h.inc -gen-op-decls -op-shard-count=${shards})
mlir_tablegen(nn/NNOps.cpp.inc -gen-op-defs -op-shard-count=${shards})
mlir_tablegen(nn/nn.md -gen-dialect-doc -dialect=nn) # for people: every op, its constraints, the order of its sums
add_public_tablegen_target(cinch_nn_tables)
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/nn)

math(EXPR last "${shards} - 1")
foreach(shard RANGE ${last})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/nn/NNOps.${shard}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT
"#include \"dialects/nn/OpParts.h\"
#define GET_OP_DEFS_${shard}
#include \"dialects/nn/NNOps.cpp.inc\"
")
  list(APPEND NN_SOURCES ${source})
endforeach()

add_library(cinch_nn STATIC ${NN_SOURCES})
add_dependencies(cinch_nn cinch_nn_tables)
target_link_libraries(cinch_nn PUBLIC cinch_ops llvm_mlir)
target_precompile_headers(cinch_nn REUSE_FROM cinch_headers_of_passes)
