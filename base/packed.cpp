#include "base/packed.hpp"

#include <bit>
#include <stdexcept>

namespace kvreplay {
namespace {

// Differences wrap around, so that any two neighbours have one.
std::int64_t difference(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}
std::int64_t sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

}  // namespace

void PackedWriter::operator()(std::int64_t value) {
  auto rest = (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
  for (; rest >= 0x80; rest >>= 7) bytes_ += static_cast<char>(rest | 0x80);
  bytes_ += static_cast<char>(rest);
}

void PackedWriter::operator()(double value) {
  auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 0; i < 8; ++i, bits >>= 8) bytes_ += static_cast<char>(bits);
}

void PackedWriter::operator()(const std::string& text) {
  operator()(std::ssize(text));
  bytes_ += text;
}

void PackedWriter::operator()(const std::vector<std::int64_t>& values) {
  operator()(std::ssize(values));
  std::int64_t last = 0;
  for (const std::int64_t value : values) {
    operator()(difference(value, last));
    last = value;
  }
}

void PackedWriter::operator()(const std::vector<double>& values) {
  operator()(std::ssize(values));
  for (const double value : values) operator()(value);
}

void PackedReader::operator()(std::int64_t& value) {
  std::uint64_t bits = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == bytes_.size()) throw std::logic_error("packed values that end too soon");
    const auto byte = static_cast<unsigned char>(bytes_[at_++]);
    bits |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) {
      value = static_cast<std::int64_t>((bits >> 1) ^ (~(bits & 1) + 1));
      return;
    }
  }
  throw std::logic_error("a packed integer that does not end");
}

void PackedReader::operator()(bool& value) {
  std::int64_t number = 0;
  operator()(number);
  value = number != 0;
}

void PackedReader::operator()(std::uint64_t& value) {
  std::int64_t number = 0;
  operator()(number);
  value = static_cast<std::uint64_t>(number);
}

void PackedReader::operator()(double& value) {
  if (bytes_.size() - at_ < 8) throw std::logic_error("packed values that end too soon");
  std::uint64_t bits = 0;
  for (int i = 7; i >= 0; --i) {
    bits = bits << 8 | static_cast<unsigned char>(bytes_[at_ + static_cast<std::size_t>(i)]);
  }
  at_ += 8;
  value = std::bit_cast<double>(bits);
}

std::size_t PackedReader::count() {
  std::int64_t number = 0;
  operator()(number);
  if (number < 0 || static_cast<std::uint64_t>(number) > bytes_.size() - at_) {
    throw std::logic_error("a packed array longer than what is left");
  }
  return static_cast<std::size_t>(number);
}

void PackedReader::check_end() const {
  if (!at_end()) throw std::logic_error("packed values with bytes left over");
}

void PackedReader::operator()(std::string& text) {
  const std::size_t size = count();
  text = bytes_.substr(at_, size);
  at_ += size;
}

void PackedReader::operator()(std::vector<std::int64_t>& values) {
  values.resize(count());
  std::int64_t last = 0;
  for (std::int64_t& value : values) {
    operator()(value);
    last = value = sum(last, value);
  }
}

void PackedReader::operator()(std::vector<double>& values) {
  values.resize(count());
  for (double& value : values) operator()(value);
}

}  // namespace kvreplay
