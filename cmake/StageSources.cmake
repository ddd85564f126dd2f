# cmake -DSOURCE=FOLDER -DLIBRARIES=FILE -DOUT=FILE -P StageSources.cmake: writes a .cpp with one hash
# per stage of the sources that its output depends on, so that a changed policy never meets an output
# of the old one. The sources of a stage do not name those of the stages before it: the keys of their
# outputs do. LIBRARIES is what kvreplay_write_stage_libraries() wrote: every folder that is a library,
# and those of each stage.
include(${LIBRARIES})

# Of every source of the folders, but not of the libraries below them.
function(stage_hash OUT)
  set(hashes)
  foreach(folder ${ARGN})
    file(GLOB_RECURSE files RELATIVE ${SOURCE} ${SOURCE}/${folder}/*.cpp ${SOURCE}/${folder}/*.hpp)
    foreach(library ${KVREPLAY_LIBRARIES})
      if(library MATCHES "^${folder}/")
        list(FILTER files EXCLUDE REGEX "^${library}/")
      endif()
    endforeach()
    list(SORT files)
    foreach(file ${files})
      file(SHA256 ${SOURCE}/${file} hash)
      string(APPEND hashes "${file} ${hash}\n")
    endforeach()
  endforeach()
  string(SHA256 hash "${hashes}")
  set(${OUT} ${hash} PARENT_SCOPE)
endfunction()

stage_hash(decide_hash ${decide})
stage_hash(place_hash ${place})
stage_hash(time_hash ${time})

file(WRITE ${OUT} "#include \"sim/replay/stage_keys.hpp\"

namespace kvreplay {

const char* const kDecideSources = \"${decide_hash}\";
const char* const kPlaceSources = \"${place_hash}\";
const char* const kTimeSources = \"${time_hash}\";

}  // namespace kvreplay
")
