# cmake -DSOURCE=FOLDER -DOUT=FILE -P StageSources.cmake: writes a .cpp with one hash a stage of the
# sources that its output depends on, so that a changed policy never meets an output of the old one.
# The sources of a stage do not name the stages before it: their outputs' keys do.

# stage_hash(OUT PATTERNS... [WITHOUT REGEX]): of every source that matches a pattern, in its folder
# or below, except what matches the expression. So a file or folder that is new counts until it is
# excluded.
function(stage_hash OUT)
  cmake_parse_arguments(ARG "" "WITHOUT" "" ${ARGN})
  set(files)
  foreach(pattern ${ARG_UNPARSED_ARGUMENTS})
    file(GLOB_RECURSE found RELATIVE ${SOURCE} ${SOURCE}/${pattern})
    list(APPEND files ${found})
  endforeach()
  list(FILTER files INCLUDE REGEX "[.][ch]pp$")
  if(ARG_WITHOUT)
    list(FILTER files EXCLUDE REGEX "${ARG_WITHOUT}")
  endif()
  list(SORT files)
  set(hashes)
  foreach(file ${files})
    file(SHA256 ${SOURCE}/${file} hash)
    string(APPEND hashes "${file} ${hash}\n")
  endforeach()
  string(SHA256 hash "${hashes}")
  set(${OUT} ${hash} PARENT_SCOPE)
endfunction()

stage_hash(decide base/* traces/* policies/decide/* policies/kernels/* sim/replay/stage_values.*
           WITHOUT "^traces/(operations|synthesis)/")
stage_hash(place policies/place/*)
stage_hash(time devices/* sim/time/* sim/replay/stage_values.*
           WITHOUT "^devices/(real|remote|served|calibration|logs)/")

file(WRITE ${OUT} "#include \"sim/replay/stage_keys.hpp\"

namespace kvreplay {

const char* const kDecideSources = \"${decide}\";
const char* const kPlaceSources = \"${place}\";
const char* const kTimeSources = \"${time}\";

}  // namespace kvreplay
")
