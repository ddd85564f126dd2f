#pragma once

#include <string>

namespace kvreplay {

/// The program's version, "0.1.0".
[[nodiscard]] std::string version();
/// The folder of the checkout that was built, for tests; "" where it is not told to a program that
/// leaves its machine.
[[nodiscard]] std::string source_folder();
/// The folder of configs/, traces/data/ and tools/: PREFIX/share/kvreplay for PREFIX/bin/kvreplay,
/// wherever it was moved; the checkout, for a program of a build folder.
[[nodiscard]] std::string data_folder();
/// The folder of what is built for use by other programs or on other machines (nbdkit's plugin,
/// agents): PREFIX/libexec/kvreplay; the build folder, for a program of one.
[[nodiscard]] std::string helper_folder();

}  // namespace kvreplay
