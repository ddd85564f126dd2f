# `cmake --install BUILD --prefix PREFIX`: the program, and a share/kvreplay that is laid out as the
# source tree. The program finds it from its own path (base/build_info.hpp), so PREFIX can be moved.
# What was not built, because its tools are not there or it was not asked for, is left out.
set(data share/kvreplay)

install(TARGETS kvreplay RUNTIME DESTINATION bin)
if(KVREPLAY_AGENTS)
  install(DIRECTORY ${KVREPLAY_AGENTS}/ DESTINATION libexec/kvreplay USE_SOURCE_PERMISSIONS)
elseif(TARGET kvreplay-agent)
  install(TARGETS kvreplay-agent RUNTIME DESTINATION libexec/kvreplay OPTIONAL)
endif()
if(TARGET kvreplay-agent-aarch64)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/kvreplay-agent-aarch64 DESTINATION libexec/kvreplay OPTIONAL)
endif()
if(TARGET nbdkit-kvreplay-plugin)
  install(TARGETS nbdkit-kvreplay-plugin LIBRARY DESTINATION libexec/kvreplay OPTIONAL)
endif()

install(DIRECTORY configs DESTINATION ${data})
install(DIRECTORY traces/data DESTINATION ${data}/traces)
install(DIRECTORY tools/scripts DESTINATION ${data}/tools USE_SOURCE_PERMISSIONS
        PATTERN __pycache__ EXCLUDE PATTERN build-wheel EXCLUDE)
install(PROGRAMS tools/plot tools/round-trip tools/serve-device DESTINATION ${data}/tools)
install(FILES LICENSE DESTINATION ${data})

# pip installs the package itself. What runs it from here then finds it around this prefix.
if(KVREPLAY_WHEEL)
  install(CODE "file(WRITE
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${data}/tools/python/kvreplay/__init__.py\"
    \"import pathlib\n\n__path__ = [str(pathlib.Path(__file__).resolve().parents[6])]\n\")")
  install(FILES tools/python/kvreplay/__main__.py tools/python/kvreplay/interpreter.py
          DESTINATION ${data}/tools/python/kvreplay)
else()
  install(DIRECTORY tools/python DESTINATION ${data}/tools PATTERN __pycache__ EXCLUDE)
endif()
