# kvreplay_library(FOLDER DEPENDS ... [STAGE decide|place|time]): one OBJECT library made of every .cpp
# below FOLDER, except in folders that are libraries of their own (KVREPLAY_LIBRARIES). OBJECT,
# because a static archive would drop the objects that only register themselves. STAGE: the library
# is the code of a stage of the replay, or parts of it (StageSources.cmake).
#
# Headers are included as "folder/file.hpp". Each target gets an include root with links to its own
# headers and to nothing else; the roots of what it depends on come with the dependency. So an
# include that the dependency list does not allow is a compile error.

set(KVREPLAY_WARNINGS -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
if(KVREPLAY_WERROR)
  list(APPEND KVREPLAY_WARNINGS -Werror)
endif()

function(kvreplay_target_name FOLDER OUT)
  string(REPLACE "/" "_" name ${FOLDER})
  set(${OUT} kvreplay_${name} PARENT_SCOPE)
endfunction()

# What every target of the project compiles with. No contraction of a*b+c: the kernels ask for fused
# multiply-add by name, and every other result must not depend on the instruction set.
function(kvreplay_compile_options TARGET)
  target_compile_options(${TARGET} PRIVATE ${KVREPLAY_WARNINGS} -ffp-contract=off)
  if(KVREPLAY_FUZZ)
    target_compile_options(${TARGET} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(KVREPLAY_SANITIZE)
    target_compile_options(${TARGET} PRIVATE -fsanitize=${KVREPLAY_SANITIZE}
                                             -fno-sanitize-recover=all -fno-omit-frame-pointer)
    # clang 14 cannot check calls through pointers in coroutines: "a difference across sections".
    target_compile_options(${TARGET} PRIVATE $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
    target_link_options(${TARGET} PUBLIC -fsanitize=${KVREPLAY_SANITIZE})
  endif()
endfunction()

# Where CMAKE_UNITY_BUILD is on, the sources of one folder compile as one file: most of what a file
# takes to compile are templates of the standard library, of JSON and of the test framework, and these
# are then instantiated once per folder. So names at file scope are unique within a folder. Tests
# compile together with those of the folders below, as tests/policies/decide/**, but for a test that
# has a part of its own, which is written as the part's file would be.
function(kvreplay_compile_by_folder TARGET)
  set_target_properties(${TARGET} PROPERTIES UNITY_BUILD_MODE GROUP)
  foreach(source ${ARGN})
    get_filename_component(folder ${source} DIRECTORY)
    file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${folder})
    string(REGEX REPLACE "^(tests/[^/]+/[^/]+)/.*" "\\1" folder ${folder})
    string(REPLACE "/" "_" folder ${folder})
    file(STRINGS ${source} part REGEX "^const Registered<")
    if(NOT part OR NOT folder MATCHES "^tests_")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder})
    endif()
  endforeach()
  if(CMAKE_UNITY_BUILD)
    # Types of an anonymous namespace are local to the one file, although it includes their source. In
    # tests, a name within a function of one source may be at file scope in another.
    target_compile_options(${TARGET} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    if("${TARGET}" MATCHES "_test_")
      target_compile_options(${TARGET} PRIVATE -Wno-shadow)
    endif()
  endif()
endfunction()

# The headers and source files below FOLDER that belong to its library.
function(kvreplay_files FOLDER OUT)
  file(GLOB_RECURSE files RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS
       ${CMAKE_SOURCE_DIR}/${FOLDER}/*.cpp ${CMAKE_SOURCE_DIR}/${FOLDER}/*.hpp)
  foreach(other ${KVREPLAY_LIBRARIES})
    if(other MATCHES "^${FOLDER}/")
      list(FILTER files EXCLUDE REGEX "^${other}/")
    endif()
  endforeach()
  set(${OUT} ${files} PARENT_SCOPE)
endfunction()

function(kvreplay_library FOLDER)
  cmake_parse_arguments(ARG "" "STAGE" "DEPENDS" ${ARGN})
  if(NOT FOLDER IN_LIST KVREPLAY_LIBRARIES)
    message(FATAL_ERROR "${FOLDER} is not in KVREPLAY_LIBRARIES")
  endif()
  kvreplay_target_name(${FOLDER} target)
  kvreplay_files(${FOLDER} files)

  set(root ${CMAKE_BINARY_DIR}/include/${target})
  file(REMOVE_RECURSE ${root})
  set(sources)
  foreach(file ${files})
    if(file MATCHES "[.]hpp$")
      get_filename_component(folder ${file} DIRECTORY)
      file(MAKE_DIRECTORY ${root}/${folder})
      file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${file} ${root}/${file} SYMBOLIC)
    else()
      list(APPEND sources ${CMAKE_SOURCE_DIR}/${file})
    endif()
  endforeach()

  set(links)
  set(reached ${FOLDER})
  foreach(dependency ${ARG_DEPENDS})
    if(dependency IN_LIST KVREPLAY_LIBRARIES)
      get_property(below GLOBAL PROPERTY kvreplay_reached_${dependency})
      list(APPEND reached ${below})
      kvreplay_target_name(${dependency} dependency)
    endif()
    list(APPEND links ${dependency})
  endforeach()
  set_property(GLOBAL PROPERTY kvreplay_reached_${FOLDER} ${reached})
  if(ARG_STAGE)
    set_property(GLOBAL APPEND PROPERTY kvreplay_stage_${ARG_STAGE} ${reached})
  endif()

  if(sources)
    add_library(${target} OBJECT ${sources})
    kvreplay_compile_options(${target})
    kvreplay_compile_by_folder(${target} ${sources})
    target_include_directories(${target} PUBLIC ${root})
    target_link_libraries(${target} PUBLIC ${links})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${root})
    target_link_libraries(${target} INTERFACE ${links})
  endif()
endfunction()

# Every object of the libraries: OBJECT libraries hand on their include paths to dependents, but
# their objects only to direct ones.
function(kvreplay_link TARGET)
  foreach(library ${ARGN})
    kvreplay_target_name(${library} library)
    target_link_libraries(${TARGET} PRIVATE ${library})
  endforeach()
endfunction()
function(kvreplay_link_all TARGET)
  kvreplay_link(${TARGET} ${KVREPLAY_LIBRARIES})
endfunction()

# Writes to FILE, for StageSources.cmake, the libraries of each stage: those with its STAGE and all
# that they depend on, but for what an earlier stage has.
function(kvreplay_write_stage_libraries FILE)
  set(text "set(KVREPLAY_LIBRARIES ${KVREPLAY_LIBRARIES})\n")
  set(earlier)
  foreach(stage decide place time)
    get_property(libraries GLOBAL PROPERTY kvreplay_stage_${stage})
    list(REMOVE_DUPLICATES libraries)
    list(REMOVE_ITEM libraries ${earlier} "")
    list(SORT libraries)
    string(APPEND text "set(${stage} ${libraries})\n")
    list(APPEND earlier ${libraries})
  endforeach()
  file(CONFIGURE OUTPUT ${FILE} CONTENT "${text}" @ONLY)
endfunction()
