#include "base/files.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/error.hpp"

namespace kvreplay {
namespace fs = std::filesystem;

void check_regular_file(const std::string& file) {
  std::error_code code;
  const fs::file_status status = fs::status(file, code);
  if (!fs::exists(status) || fs::is_regular_file(status)) return;
  throw UserError({file, ""}, "is not a regular file", "a readable file");
}

std::string read_text_file(const std::string& file, std::string_view allowed) {
  check_regular_file(file);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw UserError({file, ""}, "cannot be opened for reading", allowed);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw UserError({file, ""}, "cannot be read", allowed);
  return text.str();
}

void check_not_input(const std::string& out, const std::string& input) {
  std::error_code code;
  bool same = fs::equivalent(out, input, code) && !code;
  if (!same) {  // a new file has only a name
    const fs::path path = fs::weakly_canonical(out, code);
    same = !code && path == fs::weakly_canonical(input, code) && !code;
  }
  if (same) throw UserError({out, ""}, "is what the command reads (" + input + ")", "another file");
}

void check_is_new(const std::string& out) {
  std::error_code code;
  if (fs::symlink_status(out, code).type() == fs::file_type::not_found) return;
  throw UserError({out, ""}, "is there already", "the name of a new file");
}

void check_free_space(const std::string& path, std::uint64_t bytes) {
  std::error_code code;
  const fs::path folder = fs::absolute(path, code).parent_path();
  const fs::space_info space = fs::space(folder, code);
  if (!code && space.available < bytes) {
    throw UserError({path, ""}, "would take " + std::to_string(bytes) + " bytes",
                    "up to the " + std::to_string(space.available) + " free ones");
  }
}

}  // namespace kvreplay
