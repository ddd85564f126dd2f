#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/half.hpp"

namespace kvreplay {

/// The element types that kvreplay stores: little-endian, IEEE floats, two's complement.
enum class Hdf5Type { kUint8, kUint16, kInt32, kUint32, kInt64, kUint64, kHalf, kFloat, kDouble };

/// "16-bit float": for error messages.
[[nodiscard]] std::string_view to_text(Hdf5Type type);

/// The element type that holds a T.
template <typename T>
[[nodiscard]] constexpr Hdf5Type hdf5_type() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return Hdf5Type::kUint8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return Hdf5Type::kUint16;
  if constexpr (std::is_same_v<T, std::int32_t>) return Hdf5Type::kInt32;
  if constexpr (std::is_same_v<T, std::uint32_t>) return Hdf5Type::kUint32;
  if constexpr (std::is_same_v<T, std::int64_t>) return Hdf5Type::kInt64;
  if constexpr (std::is_same_v<T, std::uint64_t>) return Hdf5Type::kUint64;
  if constexpr (std::is_same_v<T, Half>) return Hdf5Type::kHalf;
  if constexpr (std::is_same_v<T, float>) return Hdf5Type::kFloat;
  if constexpr (std::is_same_v<T, double>) return Hdf5Type::kDouble;
}

/// How a data set's values are laid out. The default is contiguous, which can be memory-mapped.
struct Hdf5Layout {
  std::vector<std::int64_t> chunk;  ///< one extent per dimension; empty = contiguous
  int gzip_level = 0;               ///< 1 to 9, with the shuffle filter; needs chunks
};

/// The properties of a data set.
struct Hdf5Dataset {
  std::optional<Hdf5Type> type;  ///< none: a type outside Hdf5Type
  std::vector<std::int64_t> shape;
  bool contiguous = false;
  /// Where the first byte lies in the file; none when chunked, external or never written.
  std::optional<std::int64_t> offset;
  std::int64_t stored_bytes = 0;

  [[nodiscard]] std::int64_t count() const;
};

/// From now on a crash within HDF5 (on damaged values, or where it got no memory) ends the program
/// with `exit_code` and one line that names the file, without temporary files of unfinished
/// outputs.
void end_at_crash_in_hdf5(int exit_code);

/// An HDF5 file, open for reading or being created. Objects are named by absolute paths
/// ("/layer/12/key"). Every failure is a UserError that names the file and the path. HDF5 is not
/// thread-safe: one lock per process guards every call, so any thread may use any file. A written
/// file holds no time stamps: the same calls give the same bytes.
class Hdf5File {
 public:
  /// Opens the file for reading. A child process first reads all of it but the values of data
  /// sets: HDF5 1.10 crashes, loops or takes any amount of memory where a file is damaged, and that
  /// is then a UserError.
  [[nodiscard]] static Hdf5File open(const std::string& file);
  /// Creates or replaces `file`. Errors name `shown_as`: the final name, where `file` is temporary.
  [[nodiscard]] static Hdf5File create(const std::string& file, const std::string& shown_as);

  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&& other) noexcept;
  /// Always closes the file; only close() reports bytes that did not reach the file. After a write
  /// failure, HDF5 1.10 holds on to the descriptor until the process ends.
  ~Hdf5File();
  void close();

  [[nodiscard]] SourceLocation place(std::string_view path) const {
    return {file_, std::string(path)};
  }
  [[nodiscard]] bool exists(const std::string& path) const;
  /// The members of a group, sorted.
  [[nodiscard]] std::vector<std::string> names(const std::string& group) const;

  /// Every object below "/" by its path, parents first, then sorted. A UserError where links nest
  /// deeper than in any file of ours, as they do in a circle.
  [[nodiscard]] std::vector<std::string> paths() const;
  /// SHA-256 of what the file says, wherever it lies in it: every object, its attributes, and the
  /// type, shape and values of data sets (docs/trace-format.md). Not of the attribute itself, nor
  /// of the values of a data set for which `skip` is true.
  using Skip = std::function<bool(const std::string& path)>;
  [[nodiscard]] std::string content_sha256(const Skip& skip) const;
  /// The same as an attribute of "/": written last, and checked where there is one. A UserError
  /// where it differs.
  void write_content_sha256(const Skip& skip);
  void check_content_sha256(const Skip& skip) const;
  static constexpr const char* kContentSha256 = "content_sha256";

  // Attributes of the group or data set at `path`.
  [[nodiscard]] bool is_dataset(const std::string& path) const;
  [[nodiscard]] std::vector<std::string> attribute_names(const std::string& path) const;
  [[nodiscard]] bool has_attribute(const std::string& path, const std::string& name) const;
  [[nodiscard]] std::string text_attribute(const std::string& path, const std::string& name) const;
  [[nodiscard]] std::int64_t integer_attribute(const std::string& path,
                                               const std::string& name) const;
  /// An integer is also read as a real.
  [[nodiscard]] double real_attribute(const std::string& path, const std::string& name) const;
  [[nodiscard]] std::vector<std::int64_t> integers_attribute(const std::string& path,
                                                             const std::string& name) const;
  [[nodiscard]] std::vector<double> reals_attribute(const std::string& path,
                                                    const std::string& name) const;
  void write_text_attribute(const std::string& path, const std::string& name,
                            const std::string& text);
  /// A text of fixed length, which is read faster: HDF5 keeps other texts in a heap.
  void write_digest_attribute(const std::string& path, const std::string& name,
                              const std::string& digits);
  void write_integer_attribute(const std::string& path, const std::string& name,
                               std::int64_t value);
  void write_real_attribute(const std::string& path, const std::string& name, double value);
  void write_reals_attribute(const std::string& path, const std::string& name,
                             std::span<const double> values);
  void write_integers_attribute(const std::string& path, const std::string& name,
                                std::span<const std::int64_t> values);

  /// Missing groups above a new group or data set are created.
  void create_group(const std::string& path);
  void create_dataset(const std::string& path, Hdf5Type type, std::span<const std::int64_t> shape,
                      const Hdf5Layout& layout = {});
  [[nodiscard]] Hdf5Dataset dataset(const std::string& path) const;

  /// The box of `count` elements from `start` on (one number per dimension), row-major. The data
  /// set's type must be exactly T: nothing is converted.
  template <typename T>
  void read_box(const std::string& path, std::span<const std::int64_t> start,
                std::span<const std::int64_t> count, std::span<T> values) const {
    read_bytes(path, start, count, hdf5_type<T>(), std::as_writable_bytes(values));
  }
  template <typename T>
  void write_box(const std::string& path, std::span<const std::int64_t> start,
                 std::span<const std::int64_t> count, std::span<const T> values) {
    write_bytes(path, start, count, hdf5_type<T>(), std::as_bytes(values));
  }

  /// The whole data set, flattened row-major.
  template <typename T>
  [[nodiscard]] std::vector<T> read_vector(const std::string& path) const {
    const Hdf5Dataset found = dataset(path);
    const std::vector<std::int64_t> start(found.shape.size(), 0);
    check_extent(path, found, sizeof(T));
    std::vector<T> values(static_cast<std::size_t>(found.count()));
    read_box<T>(path, start, found.shape, values);
    return values;
  }
  /// A new one-dimensional data set with these values (a vector, span or array).
  template <typename Values>
  void write_vector(const std::string& path, const Values& values) {
    const std::int64_t count[] = {static_cast<std::int64_t>(std::size(values))};
    write_array(path, count, values);
  }
  /// A new data set of this shape, values row-major.
  template <typename Values>
  void write_array(const std::string& path, std::span<const std::int64_t> shape,
                   const Values& values) {
    const std::span view(values);
    using T = typename decltype(view)::value_type;
    create_dataset(path, hdf5_type<T>(), shape);
    const std::vector<std::int64_t> start(shape.size(), 0);
    write_box<T>(path, start, shape, view);
  }

 private:
  Hdf5File(std::int64_t id, std::string file) : id_(id), file_(std::move(file)) {}
  [[nodiscard]] static Hdf5File open_unchecked(const std::string& file);
  /// Throws UserError where a process that reads the file's attributes and headers does not live.
  static void check_in_child(const std::string& file);
  /// What that process does. `at` receives the path that it is about to read. False: a text that
  /// cannot be read.
  [[nodiscard]] static bool try_descriptions(const std::string& name, std::span<char> at);
  /// Throws UserError when the shape takes more memory than the stored bytes can be.
  void check_extent(const std::string& path, const Hdf5Dataset& found,
                    std::size_t element_bytes) const;
  void read_bytes(const std::string& path, std::span<const std::int64_t> start,
                  std::span<const std::int64_t> count, Hdf5Type type,
                  std::span<std::byte> bytes) const;
  void write_bytes(const std::string& path, std::span<const std::int64_t> start,
                   std::span<const std::int64_t> count, Hdf5Type type,
                   std::span<const std::byte> bytes);

  std::int64_t id_;
  std::string file_;
};

}  // namespace kvreplay
