#include "traces/shipped.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>

#include "base/build_info.hpp"

namespace kvreplay {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".kvtrace.h5";

std::string stem_of(const std::string& file) {
  const std::string name = fs::path(file).filename().string();
  return name.substr(0, name.size() - kEnding.size());
}

std::vector<std::string> words_of(const std::string& stem) {
  std::vector<std::string> words;
  std::istringstream stream(stem);
  for (std::string word; std::getline(stream, word, '-');) words.push_back(word);
  return words;
}

}  // namespace

std::vector<ShippedTrace> shipped_traces() {
  const std::string folder = data_folder() + "/traces/data";
  std::vector<std::string> files;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code)) {
    if (entry.path().string().ends_with(kEnding)) files.push_back(entry.path().string());
  }
  if (code) {
    throw UserError({folder, ""}, "cannot be read (" + code.message() + ")", "a folder of traces");
  }
  std::sort(files.begin(), files.end());
  std::map<std::string, int> uses;
  for (const std::string& file : files) {
    for (const std::string& word : words_of(stem_of(file))) ++uses[word];
  }
  std::vector<ShippedTrace> traces;
  for (const std::string& file : files) {
    const std::vector<std::string> words = words_of(stem_of(file));
    const auto own = std::find_if(words.begin(), words.end(),
                                  [&](const std::string& word) { return uses[word] == 1; });
    traces.push_back({own == words.end() ? stem_of(file) : *own, file});
  }
  return traces;
}

std::string find_trace(const std::string& name_or_file, const SourceLocation& place) {
  if (name_or_file.find('/') != std::string::npos || name_or_file.ends_with(".h5")) {
    return name_or_file;
  }
  std::vector<std::string> names;
  for (const ShippedTrace& trace : shipped_traces()) {
    if (name_or_file == trace.name || name_or_file == stem_of(trace.file)) return trace.file;
    names.push_back(trace.name);
  }
  // The names of models have points.
  if (name_or_file.find('.') != std::string::npos || fs::exists(name_or_file)) return name_or_file;
  throw unknown_name(place, "trace", name_or_file, names);
}

}  // namespace kvreplay
