# kvreplay_library(FOLDER DEPENDS ...): one OBJECT library made of every .cpp below FOLDER, except
# folders that are libraries of their own. OBJECT, because a static archive would drop the objects
# that only register themselves.
#
# Headers are included as "folder/file.hpp". Each target gets an include root that holds a link to
# its own folder and nothing else; the roots of what it depends on come with the dependency. So an
# include that the dependency list does not allow is a compile error.

set(KVREPLAY_WARNINGS -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)

function(kvreplay_target_name FOLDER OUT)
  string(REPLACE "/" "_" name ${FOLDER})
  set(${OUT} kvreplay_${name} PARENT_SCOPE)
endfunction()

# What every target of the project compiles with. No contraction of a*b+c: the kernels ask for fused
# multiply-add by name, and every other result must not depend on the instruction set.
function(kvreplay_compile_options TARGET)
  target_compile_options(${TARGET} PRIVATE ${KVREPLAY_WARNINGS} -ffp-contract=off)
  if(KVREPLAY_SANITIZE)
    target_compile_options(${TARGET} PRIVATE -fsanitize=${KVREPLAY_SANITIZE}
                                             -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${TARGET} PUBLIC -fsanitize=${KVREPLAY_SANITIZE})
  endif()
endfunction()

function(kvreplay_library FOLDER)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  kvreplay_target_name(${FOLDER} target)

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${FOLDER}/*.cpp)
  get_property(taken GLOBAL PROPERTY KVREPLAY_SOURCES)
  if(taken)
    list(REMOVE_ITEM sources ${taken})
  endif()
  set_property(GLOBAL APPEND PROPERTY KVREPLAY_SOURCES ${sources})

  set(root ${CMAKE_BINARY_DIR}/include/${target})
  get_filename_component(parent ${FOLDER} DIRECTORY)
  file(MAKE_DIRECTORY ${root}/${parent})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${FOLDER} ${root}/${FOLDER} SYMBOLIC)

  set(links)
  foreach(dependency ${ARG_DEPENDS})
    if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/${dependency})
      kvreplay_target_name(${dependency} dependency)
    endif()
    list(APPEND links ${dependency})
  endforeach()

  if(sources)
    add_library(${target} OBJECT ${sources})
    kvreplay_compile_options(${target})
    target_include_directories(${target} PUBLIC ${root})
    target_link_libraries(${target} PUBLIC ${links})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${root})
    target_link_libraries(${target} INTERFACE ${links})
  endif()
endfunction()

# Every object of every library: OBJECT libraries hand on their include paths to dependents, but
# their objects only to direct ones.
function(kvreplay_link_all TARGET)
  foreach(library kvreplay_sim_base kvreplay_sim_engine kvreplay_traces kvreplay_devices
                  kvreplay_policies kvreplay_sim_transformer kvreplay_sim)
    target_link_libraries(${TARGET} PRIVATE ${library})
  endforeach()
endfunction()
