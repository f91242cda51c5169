# Parsing the headers of MLIR takes longer than compiling what is behind them, so they are parsed once. There are two sets:
# what builds kernels needs all dialects, what works on nn and plan needs few. A source still includes what it uses:
# `-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON` builds without.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled.cpp CONTENT "")

# Headers of Debian's packages only: the checksum by which ccache knows them is their names and versions. The bytes of a
# precompiled header are others each time that it is made.
function(cinch_headers name)
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
  list(TRANSFORM ARGN REPLACE "(.+)" "<\\1>" OUTPUT_VARIABLE headers)
  target_precompile_headers(${name} PRIVATE ${headers})
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx.gch.sum
       CONTENT "${ARGN} ${LLVM_PACKAGE_VERSION} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS_RELEASE}")
endfunction()

cinch_headers(cinch_headers_of_passes
  llvm/ADT/StringExtras.h llvm/ADT/TypeSwitch.h llvm/Support/FormatVariadic.h
  mlir/Bytecode/BytecodeOpInterface.h mlir/Dialect/Arith/IR/Arith.h mlir/Dialect/Func/IR/FuncOps.h mlir/IR/Builders.h
  mlir/IR/BuiltinOps.h mlir/IR/OpImplementation.h mlir/Interfaces/SideEffectInterfaces.h mlir/Pass/Pass.h)

cinch_headers(cinch_headers_of_kernels
  llvm/ADT/StringExtras.h llvm/ADT/TypeSwitch.h llvm/Support/FormatVariadic.h
  mlir/Dialect/Arith/IR/Arith.h mlir/Dialect/Func/IR/FuncOps.h mlir/Dialect/LLVMIR/LLVMDialect.h mlir/Dialect/Math/IR/Math.h
  mlir/Dialect/MemRef/IR/MemRef.h mlir/Dialect/SCF/IR/SCF.h mlir/Dialect/Vector/IR/VectorOps.h mlir/IR/Builders.h mlir/IR/BuiltinOps.h)
