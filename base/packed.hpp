// By hand: CBOR or MessagePack would store an array's integers whole, not as small differences.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvreplay {

/// Numbers and texts one after the other, small integers in few bytes: an integer as a zigzag
/// LEB128 varint, an array's integers as the differences of neighbours, a real as its eight bytes.
/// Nothing says what comes: a PackedReader must ask for the same, in the same order.
class PackedWriter {
 public:
  void operator()(bool value) { operator()(std::int64_t{value}); }
  void operator()(std::int64_t value);
  void operator()(std::uint64_t value) { operator()(static_cast<std::int64_t>(value)); }
  void operator()(double value);
  void operator()(const std::string& text);
  void operator()(const std::vector<std::int64_t>& values);
  void operator()(const std::vector<double>& values);

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads what a PackedWriter wrote. Asking for more than there is, or for an array longer than the
/// bytes left, is a std::logic_error: whoever reads has checked that these are the bytes written.
class PackedReader {
 public:
  explicit PackedReader(std::string_view bytes) : bytes_(bytes) {}

  void operator()(bool& value);
  void operator()(std::int64_t& value);
  void operator()(std::uint64_t& value);
  void operator()(double& value);
  void operator()(std::string& text);
  void operator()(std::vector<std::int64_t>& values);
  void operator()(std::vector<double>& values);

  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }
  /// Elements of an array to come, each of at least one byte.
  [[nodiscard]] std::size_t count();

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace kvreplay
