#include "base/partial_name.hpp"

#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/hash.hpp"

namespace kvreplay {
namespace fs = std::filesystem;
namespace {

/// ".partial-1a2b3c4d-"
const std::string& marker() {
  static const std::string text = [] {
    utsname host{};
    ::uname(&host);
    return ".partial-" + sha256_text(host.nodename).substr(0, 8) + "-";
  }();
  return text;
}

}  // namespace

std::string partial_name(const std::string& path) {
  return path + marker() + std::to_string(::getpid());
}

std::vector<std::string> partial_names(const std::string& path) {
  const std::string beginning = fs::path(path).filename().string() + marker();
  const fs::path folder = fs::path(path).parent_path();
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, code), end; !code && at != end;
       at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(beginning)) names.push_back((folder / name).string());
  }
  return names;
}

void remove_abandoned(const std::string& path) {
  const std::size_t digits = (path + marker()).size();
  for (const std::string& name : partial_names(path)) {
    pid_t writer = 0;
    std::from_chars(name.data() + digits, name.data() + name.size(), writer);
    std::error_code code;
    if (writer > 0 && ::kill(writer, 0) != 0 && errno == ESRCH) fs::remove_all(name, code);
  }
}

}  // namespace kvreplay
