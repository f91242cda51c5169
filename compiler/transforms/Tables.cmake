# Pass declarations, generated into the mirrored build folder.
set(LLVM_TARGET_DEFINITIONS ${CMAKE_CURRENT_SOURCE_DIR}/transforms/Passes.td)
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/transforms)
mlir_tablegen(transforms/Passes.h.inc -gen-pass-decls -name Cinch)
add_public_tablegen_target(cinch_pass_tables)
add_dependencies(cinch_transforms cinch_pass_tables cinch_nn_tables CinchPlanTables)
