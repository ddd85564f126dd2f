# One source file an instruction set; dispatch.cpp picks at run time. -O2 in every build type: vector
# code that is not inlined is slower than none.
set(folder ${CMAKE_CURRENT_LIST_DIR})
set_source_files_properties(${folder}/kernels_scalar.cpp PROPERTIES COMPILE_OPTIONS -O2)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${folder}/kernels_avx2.cpp PROPERTIES
    COMPILE_OPTIONS "-O2;-mavx2;-mfma;-mf16c")
  set_source_files_properties(${folder}/kernels_avx512.cpp PROPERTIES
    COMPILE_OPTIONS "-O2;-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl")
endif()
