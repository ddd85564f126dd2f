#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvreplay {

/// Where fetched models are kept: $XDG_CACHE_HOME/kvreplay/models, or below ~/.cache.
[[nodiscard]] std::string model_folder();

/// The model file of a name that was fetched; a path (with a slash, or that ends in .kvmodel) is
/// taken as it is. UserError that says how to get it where there is none.
[[nodiscard]] std::string find_model(const std::string& name_or_file);

/// Standard output of a script of tools/scripts/ run by its python-env; its standard error is ours.
/// A script that fails has said why: UserError.
std::string run_script(const std::string& script, const std::vector<std::string>& arguments);

/// Token ids, separated by white space.
[[nodiscard]] std::vector<std::int32_t> parse_token_ids(const std::string& text,
                                                        const std::string& source);

}  // namespace kvreplay
