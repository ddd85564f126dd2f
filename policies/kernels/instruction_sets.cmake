# One source file an instruction set; dispatch.cpp picks at run time. -O2 in every build type: vector
# code that is not inlined is slower than none.
set(folder ${CMAKE_CURRENT_LIST_DIR})
set_source_files_properties(${folder}/kernels_scalar.cpp ${folder}/integer_products_scalar.cpp
  PROPERTIES COMPILE_OPTIONS -O2)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${folder}/kernels_avx2.cpp ${folder}/integer_products_avx2.cpp
    PROPERTIES COMPILE_OPTIONS "-O2;-mavx2;-mfma;-mf16c")
  set(avx512 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  # zig turns this off with the rest of what an x86-64 processor may lack.
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    include(CheckCXXCompilerFlag)
    check_cxx_compiler_flag(-mevex512 KVREPLAY_EVEX512)
    if(KVREPLAY_EVEX512)
      list(APPEND avx512 -mevex512)
    endif()
  endif()
  set_source_files_properties(${folder}/kernels_avx512.cpp PROPERTIES COMPILE_OPTIONS "-O2;${avx512}")
  set_source_files_properties(${folder}/integer_products_vnni.cpp PROPERTIES
    COMPILE_OPTIONS "-O2;${avx512};-mavx512vnni")
endif()
