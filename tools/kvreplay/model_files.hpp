#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvreplay {

/// The folder of fetched models: $XDG_CACHE_HOME/kvreplay/models, or below ~/.cache.
[[nodiscard]] std::string model_folder();

/// The model file of a fetched model's name. A path (with a slash, or ending in .kvmodel) is taken
/// as it is. Where there is no file, throws a UserError that says how to get it.
[[nodiscard]] std::string find_model(const std::string& name_or_file);

/// Standard output of a script of tools/scripts/, run by its python-env; its standard error is
/// ours. Throws UserError when the script fails, after it has reported why.
std::string run_script(const std::string& script, const std::vector<std::string>& arguments);

/// Token ids, separated by white space.
[[nodiscard]] std::vector<std::int32_t> parse_token_ids(const std::string& text,
                                                        const std::string& source);

}  // namespace kvreplay
