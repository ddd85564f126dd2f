// Model files: the header, and the tensors that it describes.

#include "sim/models/model_file.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

int kvreplay::fuzz::model_file_target(const std::uint8_t* data, std::size_t size) {
  return kvreplay::fuzz::expect_user_error([&] {
    const kvreplay::fuzz::InputFile file(data, size);
    const kvreplay::Model model(file.path());
    (void)model.weight_bytes();
    float sum = 0;
    for (const float value : model.output_norm()) sum += value;
    static_cast<void>(sum);
  });
}
