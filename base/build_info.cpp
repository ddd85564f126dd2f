#include "base/build_info.hpp"

#include <filesystem>
#include <system_error>

namespace kvreplay {
namespace {

/// The folder of the running program's file; "" where /proc does not tell.
std::filesystem::path program_folder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

/// Where the program was installed: its folder's parent, if that has the program's data.
std::filesystem::path prefix() {
  std::error_code ignored;
  const std::filesystem::path parent = program_folder().parent_path();
  return std::filesystem::is_directory(parent / "share/kvreplay/configs", ignored) ? parent : "";
}

}  // namespace

std::string version() {
  return KVREPLAY_VERSION;
}

std::string source_folder() {
  return KVREPLAY_SOURCE_DIR;
}

std::string data_folder() {
  static const std::filesystem::path installed = prefix();
  return installed.empty() ? source_folder() : (installed / "share/kvreplay").string();
}

std::string helper_folder() {
  static const std::filesystem::path installed = prefix();
  return (installed.empty() ? program_folder() : installed / "libexec/kvreplay").string();
}

}  // namespace kvreplay
