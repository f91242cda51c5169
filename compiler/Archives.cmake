# How LLVM and MLIR are linked. Their shared libraries have 400,000 places that are relocated at each start, 60 ms and 80 MB of every call
# whatever it does; so what is called often is linked from their archives, with what it uses and at fixed addresses. That takes 5 s and
# 110 MB a program, which the unit tests would not be worth: they take the shared libraries.
#
# `llvm_mlir` is the one or the other, as the executable at the end of the line asks: links_archives(EXECUTABLE).
file(GLOB archives ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a)
list(FILTER archives EXCLUDE REGEX "MLIRCAPI|TestPasses|LLVMExegesis|LLVMBOLT")
add_library(llvm_mlir INTERFACE)
target_link_libraries(llvm_mlir INTERFACE
  "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:LINKS_ARCHIVES>>>:MLIR;LLVM;z;zstd>"
  "$<$<BOOL:$<TARGET_PROPERTY:LINKS_ARCHIVES>>:-Wl,--start-group;${archives};-Wl,--end-group;z;zstd>")

# lld's driver starts each of LLVM's code generators, and Polly, for bitcode, which it never gets from us. Those that no kernel is compiled by do nothing:
# they would be three quarters of the executable.
set(text "// Code generators that no kernel needs, and Polly, which has no archive.
#include \"llvm/Plugins/PassPlugin.h\"
#include <cstdlib>
llvm::PassPluginLibraryInfo getPollyPluginInfo() { abort(); }
")
foreach(target ${LLVM_TARGETS_TO_BUILD})
  if(NOT target MATCHES "^(X86|NVPTX)$")
    foreach(part TargetInfo Target TargetMC AsmPrinter AsmParser)
      string(APPEND text "extern \"C\" void LLVMInitialize${target}${part}() {}\n")
    endforeach()
  endif()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/compiler/OtherTargets.cpp CONTENT "${text}" @ONLY)

function(links_archives executable)
  set_target_properties(${executable} PROPERTIES LINKS_ARCHIVES ON)
  target_sources(${executable} PRIVATE ${CMAKE_BINARY_DIR}/compiler/OtherTargets.cpp)
  target_link_options(${executable} PRIVATE -no-pie -static-libstdc++ -static-libgcc -Wl,--gc-sections)
endfunction()
