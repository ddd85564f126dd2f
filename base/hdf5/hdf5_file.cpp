#include "base/hdf5/hdf5_file.hpp"

#include <fcntl.h>
#include <hdf5.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/hash.hpp"
#include "base/interrupt_cleanup.hpp"

namespace kvreplay {
namespace {

static_assert(std::endian::native == std::endian::little, "values are stored little-endian");
static_assert(std::is_same_v<hid_t, std::int64_t>, "Hdf5File holds an hid_t");

/// Vectors start at cache-line boundaries of the file, and therefore of its mapping.
constexpr hsize_t kAlignedFromBytes = 512;
constexpr hsize_t kAlignmentBytes = 64;

/// Indexed by H5T_class_t.
constexpr std::array kTypeClasses = {"an integer", "a real",      "a time",     "text",
                                     "bits",       "opaque data", "a compound", "a reference",
                                     "an enum",    "a sequence",  "an array"};

/// How the message of a failed system call begins.
constexpr std::string_view kSystemMessage = "error message = '";

constexpr const char* kRoom = "a writable folder with free space";

/// The file that this thread uses HDF5 for: what a crash within HDF5 is put down to.
thread_local const char* file_in_use = nullptr;
int crash_exit_code = 0;

/// In a child process: its one thread holds the lock under its parent's number, and cannot take it.
bool is_careless = false;

constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};

void on_crash(int signal) {
  if (file_in_use == nullptr) {  // not HDF5's: as it would have been without this handler
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  MessageLine line;
  line << "kvreplay: " << file_in_use
       << ": HDF5 crashed while it worked on this file; allowed: a sound file, and enough memory";
  end_program(line.end(), crash_exit_code);
}

/// The lock for every use of the library, including the destruction of handles. Recursive, so that
/// the public functions may call each other.
class Library {
 public:
  explicit Library(const std::string& file)
      : lock_(mutex(), std::defer_lock), outer_(std::exchange(file_in_use, file.c_str())) {
    if (!is_careless) lock_.lock();
    // At exit, HDF5 1.10 would again close a file whose closing failed on a full disk, and crash.
    [[maybe_unused]] static const herr_t kNoExitHandler = H5dont_atexit();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Library() { file_in_use = outer_; }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

 private:
  static std::recursive_mutex& mutex() {
    static std::recursive_mutex mutex;
    return mutex;
  }
  std::unique_lock<std::recursive_mutex> lock_;
  const char* outer_;
};

class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  /// Whether closing went well: bytes that HDF5 held back may reach the file only now.
  [[nodiscard]] bool close_now() { return close_(std::exchange(id_, -1)) >= 0; }
  [[nodiscard]] hid_t get() const { return id_; }
  [[nodiscard]] bool valid() const { return id_ >= 0; }

 private:
  hid_t id_;
  Close close_;
};

/// HDF5's description of its last failure: the innermost message, without the addresses and times
/// that a system call's message carries.
std::string reason() {
  std::string message;
  const auto keep_first = [](unsigned depth, const H5E_error2_t* error, void* text) -> herr_t {
    if (depth == 0 && error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &message);
  if (const auto begin = message.find(kSystemMessage); begin != std::string::npos) {
    const auto text = begin + kSystemMessage.size();
    message = message.substr(text, message.find('\'', text) - text);
  }
  return message.empty() ? "" : " (" + message + ")";
}

UserError failure(const SourceLocation& place, std::string_view what, std::string_view allowed) {
  return {place, std::string(what) + reason(), allowed};
}

Handle half_type() {
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  // 1 sign, 5 exponent and 10 mantissa bits, as h5py writes float16.
  H5Tset_fields(type.get(), 15, 10, 5, 0, 10);
  H5Tset_size(type.get(), 2);
  H5Tset_ebias(type.get(), 15);
  return type;
}

/// The library's own types must not be closed, hence the copy.
Handle make_type(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::kUint8:
      return {H5Tcopy(H5T_STD_U8LE), H5Tclose};
    case Hdf5Type::kUint16:
      return {H5Tcopy(H5T_STD_U16LE), H5Tclose};
    case Hdf5Type::kInt32:
      return {H5Tcopy(H5T_STD_I32LE), H5Tclose};
    case Hdf5Type::kUint32:
      return {H5Tcopy(H5T_STD_U32LE), H5Tclose};
    case Hdf5Type::kInt64:
      return {H5Tcopy(H5T_STD_I64LE), H5Tclose};
    case Hdf5Type::kUint64:
      return {H5Tcopy(H5T_STD_U64LE), H5Tclose};
    case Hdf5Type::kHalf:
      return half_type();
    case Hdf5Type::kFloat:
      return {H5Tcopy(H5T_IEEE_F32LE), H5Tclose};
    case Hdf5Type::kDouble:
      return {H5Tcopy(H5T_IEEE_F64LE), H5Tclose};
  }
  throw std::logic_error("unknown Hdf5Type");
}

constexpr std::array kTypes = {Hdf5Type::kUint8,  Hdf5Type::kUint16, Hdf5Type::kInt32,
                               Hdf5Type::kUint32, Hdf5Type::kInt64,  Hdf5Type::kUint64,
                               Hdf5Type::kHalf,   Hdf5Type::kFloat,  Hdf5Type::kDouble};

std::size_t size_bytes(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::kUint8:
      return 1;
    case Hdf5Type::kUint16:
    case Hdf5Type::kHalf:
      return 2;
    case Hdf5Type::kInt32:
    case Hdf5Type::kUint32:
    case Hdf5Type::kFloat:
      return 4;
    case Hdf5Type::kInt64:
    case Hdf5Type::kUint64:
    case Hdf5Type::kDouble:
      return 8;
  }
  throw std::logic_error("unknown Hdf5Type");
}

std::vector<hsize_t> to_hsize(std::span<const std::int64_t> values) {
  return {values.begin(), values.end()};
}

Handle make_space(std::span<const std::int64_t> shape) {
  const std::vector<hsize_t> extents = to_hsize(shape);
  return {H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose};
}

Handle open_object(hid_t file, const SourceLocation& place) {
  Handle object(H5Oopen(file, place.within.c_str(), H5P_DEFAULT), H5Oclose);
  if (!object.valid()) throw UserError(place, "is missing", "");
  return object;
}

Handle open_dataset(hid_t file, const SourceLocation& place) {
  const Handle object = open_object(file, place);
  if (H5Iget_type(object.get()) != H5I_DATASET) throw UserError(place, "is a group", "a data set");
  Handle dataset(H5Dopen2(file, place.within.c_str(), H5P_DEFAULT), H5Dclose);
  if (!dataset.valid()) throw failure(place, "cannot be opened", "a data set");
  return dataset;
}

/// An attribute opened for reading, with the beginning of messages about it.
struct Attribute {
  SourceLocation place;
  std::string label;
  Handle id;
  Handle type;
  Handle space;

  [[nodiscard]] UserError refuse(std::string_view allowed) const {
    const int type_class = H5Tget_class(type.get());
    const bool known = type_class >= 0 && type_class < static_cast<int>(kTypeClasses.size());
    const std::string kind = known ? kTypeClasses[static_cast<std::size_t>(type_class)] : "unknown";
    return {place, label + " holds " + kind + " of " + std::to_string(count()) + " values",
            allowed};
  }
  [[nodiscard]] hssize_t count() const { return H5Sget_simple_extent_npoints(space.get()); }
  /// Far more than one per layer is a damaged header.
  [[nodiscard]] bool count_is_sound() const { return count() >= 0 && count() <= 1 << 20; }
  [[nodiscard]] H5T_class_t type_class() const { return H5Tget_class(type.get()); }

  void read(hid_t memory_type, void* values) const {
    if (H5Aread(id.get(), memory_type, values) < 0) {
      throw failure(place, label + " cannot be read", "");
    }
  }
};

Attribute open_attribute(hid_t file, const SourceLocation& place, const std::string& name) {
  const Handle object = open_object(file, place);
  const std::string label = "attribute '" + name + "'";
  if (H5Aexists(object.get(), name.c_str()) <= 0) throw UserError(place, label + " is missing", "");
  Handle id(H5Aopen(object.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!id.valid()) throw failure(place, label + " cannot be opened", "");
  Handle type(H5Aget_type(id.get()), H5Tclose);
  Handle space(H5Aget_space(id.get()), H5Sclose);
  return {place, label, std::move(id), std::move(type), std::move(space)};
}

/// Of a text: far longer than any of ours.
constexpr std::size_t kMaxTextBytes = 16 << 20;

/// In a child process: a heap object of a wrong size, 1 GB in a file of 7 MB, is an error.
void limit_memory() {
  std::ifstream stream("/proc/self/statm");
  std::uint64_t pages = 0;
  for (int field = 0; field < 6; ++field) stream >> pages;  // the sixth: data and stack
  if (!stream) return;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + 8 * kMaxTextBytes;
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_DATA, &limit);
}

/// Text of variable length. HDF5 1.10 trusts the sizes in the heap where its bytes lie, and crashes
/// on wrong ones: a child process has read it before.
std::string read_variable_text(const Attribute& attribute, hid_t memory_type) {
  char* characters = nullptr;
  attribute.read(memory_type, &characters);
  if (characters == nullptr) return "";
  const std::unique_ptr<char, herr_t (*)(void*)> owner(characters, H5free_memory);
  if (::strnlen(characters, kMaxTextBytes + 1) > kMaxTextBytes) {
    throw attribute.refuse("a text of at most " + std::to_string(kMaxTextBytes) + " bytes");
  }
  return characters;
}

void write_attribute(hid_t file, const SourceLocation& place, const std::string& name, hid_t type,
                     const Handle& space, const void* values) {
  const Handle object = open_object(file, place);
  const Handle attribute(
      H5Acreate2(object.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose);
  if (!attribute.valid() || H5Awrite(attribute.get(), type, values) < 0) {
    throw failure(place, "attribute '" + name + "' cannot be written", kRoom);
  }
}

/// Property list for links: creates missing groups on the way.
Handle make_link_properties() {
  Handle properties(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(properties.get(), 1);
  return properties;
}

/// Selects `count` elements from `start` in the file; checks that they lie inside.
Handle select_box(const Handle& dataset, const SourceLocation& place,
                  std::span<const std::int64_t> start, std::span<const std::int64_t> count) {
  Handle space(H5Dget_space(dataset.get()), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank != static_cast<int>(start.size()) || start.size() != count.size()) {
    throw UserError(place, "has " + std::to_string(rank) + " dimensions",
                    std::to_string(start.size()));
  }
  if (rank == 0) return space;
  if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, to_hsize(start).data(), nullptr,
                          to_hsize(count).data(), nullptr) < 0 ||
      H5Sselect_valid(space.get()) <= 0) {
    throw UserError(place, "is smaller than the requested range", "");
  }
  return space;
}

std::int64_t product(std::span<const std::int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{});
}

/// Of groups: ours are /layer/NN/stream/N/name.
constexpr std::ptrdiff_t kDeepest = 8;

bool is_too_deep(const std::string& group) {
  return std::count(group.begin(), group.end(), '/') > kDeepest;
}

std::string path_below(const std::string& group, const std::string& name) {
  return (group == "/" ? "" : group) + "/" + name;
}

/// What a child process tells of a file, in memory that it shares with its parent.
struct ChildReport {
  bool is_sound;
  std::array<char, 4000> path;  ///< what it read last
};

/// Reads the attribute as its value may be asked for later. False: a text that cannot be read.
bool try_attribute(hid_t file, const SourceLocation& place, const std::string& name) {
  const Attribute attribute = open_attribute(file, place, name);
  if (attribute.type_class() == H5T_STRING) {
    if (attribute.count() != 1 || H5Tis_variable_str(attribute.type.get()) <= 0) return true;
    const Handle memory_type(H5Tcopy(attribute.type.get()), H5Tclose);
    try {
      (void)read_variable_text(attribute, memory_type.get());
    } catch (const UserError&) {
      return false;
    }
  } else if (attribute.count_is_sound() && attribute.count() > 0) {
    const auto count = static_cast<std::size_t>(attribute.count());
    if (attribute.type_class() == H5T_INTEGER) {
      attribute.read(H5T_NATIVE_INT64, std::vector<std::int64_t>(count).data());
    } else if (attribute.type_class() == H5T_FLOAT) {
      attribute.read(H5T_NATIVE_DOUBLE, std::vector<double>(count).data());
    }
  }
  return true;
}

volatile std::sig_atomic_t seconds_of_object = 0;  ///< in which the process was not stopped

/// Ticks of a stopped process come as one, so that a stop does not count.
void on_second(int) {
  constexpr int kMostSeconds = 60;
  seconds_of_object = seconds_of_object + 1;
  if (seconds_of_object >= kMostSeconds) ::_exit(kMostSeconds);
}

/// Damage makes HDF5 loop. What is sound takes some 60 us per object; on a slow disk, it waits.
void limit_time_of_one_object() {
  constexpr itimerval kProcessorTime{{0, 0}, {2, 0}};  // seconds
  constexpr itimerval kEverySecond{{1, 0}, {1, 0}};
  ::setitimer(ITIMER_PROF, &kProcessorTime, nullptr);
  seconds_of_object = 0;
  ::setitimer(ITIMER_REAL, &kEverySecond, nullptr);
}

/// A child process that may crash: within limits of memory and time, and without a word.
void become_careless() {
  constexpr rlimit kNoCore{0, 0};
  is_careless = true;
  become_helper_process();
  for (const int crash : kCrashes) ::signal(crash, SIG_DFL);
  ::signal(SIGPROF, SIG_DFL);
  ::signal(SIGALRM, on_second);
  limit_time_of_one_object();
  ::setrlimit(RLIMIT_CORE, &kNoCore);
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) ::dup2(nowhere, STDERR_FILENO);
  limit_memory();
}

/// Damage makes groups contain each other. What is sound takes at least some 500 bytes per object.
std::int64_t most_objects(const std::string& file) {
  constexpr std::int64_t kBytesPerObject = 128;
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 ? status.st_size / kBytesPerObject : 0;
}

}  // namespace

void end_at_crash_in_hdf5(int exit_code) {
  crash_exit_code = exit_code;
  struct sigaction action {};
  action.sa_handler = on_crash;
  for (const int crash : kCrashes) {
    if (crash != SIGBUS) ::sigaction(crash, &action, nullptr);
  }
}

std::string_view to_text(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::kUint8:
      return "8-bit unsigned integer";
    case Hdf5Type::kUint16:
      return "16-bit unsigned integer";
    case Hdf5Type::kInt32:
      return "32-bit integer";
    case Hdf5Type::kUint32:
      return "32-bit unsigned integer";
    case Hdf5Type::kInt64:
      return "64-bit integer";
    case Hdf5Type::kUint64:
      return "64-bit unsigned integer";
    case Hdf5Type::kHalf:
      return "16-bit float";
    case Hdf5Type::kFloat:
      return "32-bit float";
    case Hdf5Type::kDouble:
      return "64-bit float";
  }
  throw std::logic_error("unknown Hdf5Type");
}

std::int64_t Hdf5Dataset::count() const {
  return product(shape);
}

Hdf5File Hdf5File::open(const std::string& file) {
  // System error messages come first: HDF5 does not distinguish a missing file from a folder.
  const SourceLocation whole{file, ""};
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    throw UserError(whole, std::string("cannot be opened (") + std::strerror(errno) + ")",
                    "a readable HDF5 file");
  }
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  ::close(descriptor);
  if (!regular) throw UserError(whole, "is not a regular file", "a readable HDF5 file");

  check_in_child(file);
  return open_unchecked(file);
}

Hdf5File Hdf5File::open_unchecked(const std::string& file) {
  const Library library(file);
  if (H5Fis_hdf5(file.c_str()) <= 0)
    throw UserError({file, ""}, "is not an HDF5 file", "an HDF5 file");
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Files appear whole under their final names, and some file systems have no locks.
  H5Pset_file_locking(access.get(), false, true);
  H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
  const hid_t id = H5Fopen(file.c_str(), H5F_ACC_RDONLY, access.get());
  if (id < 0) throw failure({file, "/"}, "cannot be opened", "a whole, sound HDF5 file");
  return {id, file};
}

bool Hdf5File::try_descriptions(const std::string& name, std::span<char> at) {
  // Other mistakes are told, better, by whoever asks for what cannot be read.
  const auto quietly = [](const auto& read) {
    try {
      read();
    } catch (const UserError&) {
    }
  };
  bool is_sound = true;
  quietly([&] {
    const Hdf5File file = open_unchecked(name);
    std::vector<std::string> paths{"/"};
    for (std::int64_t left = most_objects(name); !paths.empty() && is_sound; --left) {
      const std::string path = std::move(paths.back());
      paths.pop_back();
      at[path.copy(at.data(), at.size() - 1)] = '\0';
      limit_time_of_one_object();
      is_sound = left > 0;
      quietly([&] {
        if (file.is_dataset(path)) {
          (void)file.dataset(path);
        } else if (!is_too_deep(path)) {
          for (const std::string& below : file.names(path)) {
            paths.push_back(path_below(path, below));
          }
        }
      });
      std::vector<std::string> attributes;
      quietly([&] { attributes = file.attribute_names(path); });
      for (const std::string& attribute : attributes) {
        quietly([&] { is_sound &= try_attribute(file.id_, file.place(path), attribute); });
      }
    }
  });
  return is_sound;
}

void Hdf5File::check_in_child(const std::string& file) {
  const Library library(file);  // no other thread is within HDF5 when the process is copied
  void* const shared = ::mmap(nullptr, sizeof(ChildReport), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const pid_t child = shared == MAP_FAILED ? -1 : ::fork();
  if (child < 0) {
    throw UserError({file, ""}, std::string("cannot be checked (") + std::strerror(errno) + ")",
                    "room for one more process");
  }
  auto& report = *static_cast<ChildReport*>(shared);
  if (child == 0) {
    try {
      become_careless();
      report.is_sound = try_descriptions(file, report.path);
    } catch (...) {  // no memory
    }
    ::_exit(0);
  }
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  const bool is_sound = report.is_sound;
  const std::string path(report.path.data());
  ::munmap(shared, sizeof(ChildReport));
  if (!is_sound) {
    throw UserError({file, path}, "cannot be read by HDF5", "a sound file, and enough memory");
  }
}

Hdf5File Hdf5File::create(const std::string& file, const std::string& shown_as) {
  const Library library(shown_as);
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access.get(), false, true);
  H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
  H5Pset_alignment(access.get(), kAlignedFromBytes, kAlignmentBytes);
  const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.get(), false);
  const hid_t id = H5Fcreate(file.c_str(), H5F_ACC_TRUNC, creation.get(), access.get());
  if (id < 0) throw failure({shown_as, ""}, "cannot be created", kRoom);
  return {id, shown_as};
}

Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : id_(std::exchange(other.id_, -1)), file_(std::move(other.file_)) {}

Hdf5File& Hdf5File::operator=(Hdf5File&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(file_, other.file_);
  return *this;
}

Hdf5File::~Hdf5File() {
  if (id_ < 0) return;
  const Library library(file_);
  H5Fclose(id_);
}

void Hdf5File::close() {
  const Library library(file_);
  const hid_t id = std::exchange(id_, -1);
  const bool flushed = H5Fflush(id, H5F_SCOPE_LOCAL) >= 0;
  const std::string why = flushed ? "" : reason();
  if (H5Fclose(id) < 0 || !flushed) {
    throw UserError({file_, ""}, "cannot be written" + why, kRoom);
  }
}

bool Hdf5File::exists(const std::string& path) const {
  const Library library(file_);
  // H5Lexists wants every group on the way to exist.
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    if (H5Lexists(id_, path.substr(0, slash).c_str(), H5P_DEFAULT) <= 0) return false;
    if (slash == std::string::npos) return H5Oexists_by_name(id_, path.c_str(), H5P_DEFAULT) > 0;
  }
}

std::vector<std::string> Hdf5File::names(const std::string& group) const {
  const Library library(file_);
  const Handle object = open_object(id_, place(group));
  if (H5Iget_type(object.get()) != H5I_GROUP) {
    throw UserError(place(group), "is a data set", "a group");
  }
  std::vector<std::string> names;
  const auto keep = [](hid_t, const char* name, const H5L_info_t*, void* all) -> herr_t {
    static_cast<std::vector<std::string>*>(all)->emplace_back(name);
    return 0;
  };
  if (H5Literate(object.get(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, keep, &names) < 0) {
    throw failure(place(group), "cannot be listed", "");
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool Hdf5File::is_dataset(const std::string& path) const {
  const Library library(file_);
  return H5Iget_type(open_object(id_, place(path)).get()) == H5I_DATASET;
}

std::vector<std::string> Hdf5File::attribute_names(const std::string& path) const {
  const Library library(file_);
  std::vector<std::string> names;
  const auto keep = [](hid_t, const char* name, const H5A_info_t*, void* all) -> herr_t {
    static_cast<std::vector<std::string>*>(all)->emplace_back(name);
    return 0;
  };
  const Handle object = open_object(id_, place(path));
  if (H5Aiterate2(object.get(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, keep, &names) < 0) {
    throw failure(place(path), "has attributes that cannot be listed", "a sound file");
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> Hdf5File::paths() const {
  std::vector<std::string> paths{"/"};
  for (std::size_t next = 0; next < paths.size(); ++next) {
    const std::string path = paths[next];  // a copy: the vector grows
    if (is_dataset(path)) continue;
    if (is_too_deep(path)) {
      throw UserError(place(path), "is nested deeper than in any file of kvreplay", "a sound file");
    }
    for (const std::string& name : names(path)) paths.push_back(path_below(path, name));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

namespace {

/// One attribute, as content_sha256() takes it: by what it says, not by how wide it is stored.
void add_attribute(const Hdf5File& file, const std::string& path, const std::string& name,
                   H5T_class_t type_class, Sha256& hash) {
  const auto add = [&](std::string_view kind, std::size_t count, std::string_view bytes) {
    hash.update("attribute " + name + " " + std::string(kind) + " " + std::to_string(count) + "\n");
    hash.update(bytes);
    hash.update("\n");
  };
  const auto bytes_of = [](const auto& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * 8);
  };
  if (type_class == H5T_STRING) {
    const std::string text = file.text_attribute(path, name);
    add("text", text.size(), text);
  } else if (type_class == H5T_INTEGER) {
    const std::vector<std::int64_t> values = file.integers_attribute(path, name);
    add("integers", values.size(), bytes_of(values));
  } else if (type_class == H5T_FLOAT) {
    const std::vector<double> values = file.reals_attribute(path, name);
    add("reals", values.size(), bytes_of(values));
  } else {
    throw UserError(file.place(path),
                    "attribute '" + name +
                        "' is of a type that no file of "
                        "kvreplay has",
                    "text, integers or reals");
  }
}

}  // namespace

std::string Hdf5File::content_sha256(const Skip& skip) const {
  const Library library(file_);
  Sha256 hash;
  std::vector<std::byte> values;
  for (const std::string& path : paths()) {
    if (is_dataset(path)) {
      const Hdf5Dataset found = dataset(path);
      if (!found.type) throw UserError(place(path), "holds values of another type", "ours");
      hash.update("data " + path + " " + std::string(to_text(*found.type)));
      for (const std::int64_t extent : found.shape) hash.update(" " + std::to_string(extent));
      hash.update("\n");
      if (!skip(path)) {
        check_extent(path, found, size_bytes(*found.type));
        values.resize(static_cast<std::size_t>(found.count()) * size_bytes(*found.type));
        const std::vector<std::int64_t> start(found.shape.size(), 0);
        read_bytes(path, start, found.shape, *found.type, values);
        hash.update(values);
        hash.update("\n");
      }
    } else {
      hash.update("group " + path + "\n");
    }
    for (const std::string& name : attribute_names(path)) {
      if (path == "/" && name == kContentSha256) continue;
      const Attribute attribute = open_attribute(id_, place(path), name);
      add_attribute(*this, path, name, attribute.type_class(), hash);
    }
  }
  return hash.hex();
}

void Hdf5File::write_content_sha256(const Skip& skip) {
  write_digest_attribute("/", kContentSha256, content_sha256(skip));
}

void Hdf5File::check_content_sha256(const Skip& skip) const {
  if (!has_attribute("/", kContentSha256)) return;
  if (text_attribute("/", kContentSha256) == content_sha256(skip)) return;
  throw UserError(
      place("/"),
      std::string("the file's contents do not match its attribute '") + kContentSha256 + "'",
      "an undamaged file; one that was changed on purpose goes without the attribute");
}

void Hdf5File::check_extent(const std::string& path, const Hdf5Dataset& found,
                            std::size_t element_bytes) const {
  // Gzip makes at most 1 of 1032 bytes.
  constexpr std::int64_t kMaxExpansion = 1100;
  std::int64_t most = found.stored_bytes;
  if (!found.contiguous) most = most < (std::int64_t{1} << 50) ? most * kMaxExpansion : most;
  most /= static_cast<std::int64_t>(element_bytes);
  for (const std::int64_t extent : found.shape) {
    if (extent < 0 || extent > most) {
      throw UserError(place(path),
                      "has more values than the " + std::to_string(found.stored_bytes) +
                          " bytes that are stored can be",
                      "a sound data set");
    }
    if (extent == 0) return;
    most /= extent;
  }
}

bool Hdf5File::has_attribute(const std::string& path, const std::string& name) const {
  const Library library(file_);
  return H5Aexists(open_object(id_, place(path)).get(), name.c_str()) > 0;
}

std::string Hdf5File::text_attribute(const std::string& path, const std::string& name) const {
  const Library library(file_);
  const Attribute attribute = open_attribute(id_, place(path), name);
  if (attribute.type_class() != H5T_STRING || attribute.count() != 1) {
    throw attribute.refuse("one text");
  }
  const Handle memory_type(H5Tcopy(attribute.type.get()), H5Tclose);
  if (H5Tis_variable_str(attribute.type.get()) > 0) {
    return read_variable_text(attribute, memory_type.get());
  }
  if (H5Tget_size(attribute.type.get()) > kMaxTextBytes) throw attribute.refuse("a short text");
  std::string text(H5Tget_size(attribute.type.get()), '\0');
  attribute.read(memory_type.get(), text.data());
  if (H5Tget_strpad(attribute.type.get()) == H5T_STR_SPACEPAD) {
    text.erase(text.find_last_not_of(' ') + 1);
  }
  return text.substr(0, text.find('\0'));
}

std::int64_t Hdf5File::integer_attribute(const std::string& path, const std::string& name) const {
  const Library library(file_);
  const Attribute attribute = open_attribute(id_, place(path), name);
  if (attribute.type_class() != H5T_INTEGER || attribute.count() != 1) {
    throw attribute.refuse("one integer");
  }
  std::int64_t value = 0;
  attribute.read(H5T_NATIVE_INT64, &value);
  return value;
}

double Hdf5File::real_attribute(const std::string& path, const std::string& name) const {
  const Library library(file_);
  const Attribute attribute = open_attribute(id_, place(path), name);
  const H5T_class_t type_class = attribute.type_class();
  if ((type_class != H5T_FLOAT && type_class != H5T_INTEGER) || attribute.count() != 1) {
    throw attribute.refuse("one real");
  }
  double value = 0;
  attribute.read(H5T_NATIVE_DOUBLE, &value);
  return value;
}

std::vector<std::int64_t> Hdf5File::integers_attribute(const std::string& path,
                                                       const std::string& name) const {
  const Library library(file_);
  const Attribute attribute = open_attribute(id_, place(path), name);
  if (attribute.type_class() != H5T_INTEGER || !attribute.count_is_sound()) {
    throw attribute.refuse("integers");
  }
  std::vector<std::int64_t> values(static_cast<std::size_t>(attribute.count()));
  if (!values.empty()) attribute.read(H5T_NATIVE_INT64, values.data());
  return values;
}

std::vector<double> Hdf5File::reals_attribute(const std::string& path,
                                              const std::string& name) const {
  const Library library(file_);
  const Attribute attribute = open_attribute(id_, place(path), name);
  const H5T_class_t type_class = attribute.type_class();
  if ((type_class != H5T_FLOAT && type_class != H5T_INTEGER) || !attribute.count_is_sound()) {
    throw attribute.refuse("reals");
  }
  std::vector<double> values(static_cast<std::size_t>(attribute.count()));
  if (!values.empty()) attribute.read(H5T_NATIVE_DOUBLE, values.data());
  return values;
}

void Hdf5File::write_text_attribute(const std::string& path, const std::string& name,
                                    const std::string& text) {
  const Library library(file_);
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose);
  const char* characters = text.c_str();
  write_attribute(id_, place(path), name, type.get(), scalar, &characters);
}

void Hdf5File::write_digest_attribute(const std::string& path, const std::string& name,
                                      const std::string& digits) {
  const Library library(file_);
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), digits.size());
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose);
  write_attribute(id_, place(path), name, type.get(), scalar, digits.data());
}

void Hdf5File::write_integer_attribute(const std::string& path, const std::string& name,
                                       std::int64_t value) {
  const Library library(file_);
  const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose);
  write_attribute(id_, place(path), name, H5T_STD_I64LE, scalar, &value);
}

void Hdf5File::write_real_attribute(const std::string& path, const std::string& name,
                                    double value) {
  const Library library(file_);
  const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose);
  write_attribute(id_, place(path), name, H5T_IEEE_F64LE, scalar, &value);
}

void Hdf5File::write_reals_attribute(const std::string& path, const std::string& name,
                                     std::span<const double> values) {
  const Library library(file_);
  const std::int64_t count[] = {static_cast<std::int64_t>(values.size())};
  write_attribute(id_, place(path), name, H5T_IEEE_F64LE, make_space(count), values.data());
}

void Hdf5File::write_integers_attribute(const std::string& path, const std::string& name,
                                        std::span<const std::int64_t> values) {
  const Library library(file_);
  const std::int64_t count[] = {static_cast<std::int64_t>(values.size())};
  write_attribute(id_, place(path), name, H5T_STD_I64LE, make_space(count), values.data());
}

void Hdf5File::create_group(const std::string& path) {
  const Library library(file_);
  const Handle group(
      H5Gcreate2(id_, path.c_str(), make_link_properties().get(), H5P_DEFAULT, H5P_DEFAULT),
      H5Gclose);
  if (!group.valid()) throw failure(place(path), "cannot be created", kRoom);
}

void Hdf5File::create_dataset(const std::string& path, Hdf5Type type,
                              std::span<const std::int64_t> shape, const Hdf5Layout& layout) {
  const Library library(file_);
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.get(), false);
  if (!layout.chunk.empty()) {
    const std::vector<hsize_t> chunk = to_hsize(layout.chunk);
    H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data());
    if (layout.gzip_level > 0) {
      H5Pset_shuffle(creation.get());
      H5Pset_deflate(creation.get(), static_cast<unsigned>(layout.gzip_level));
    }
  }
  const Handle dataset(H5Dcreate2(id_, path.c_str(), make_type(type).get(), make_space(shape).get(),
                                  make_link_properties().get(), creation.get(), H5P_DEFAULT),
                       H5Dclose);
  if (!dataset.valid()) throw failure(place(path), "cannot be created", kRoom);
}

Hdf5Dataset Hdf5File::dataset(const std::string& path) const {
  const Library library(file_);
  const Handle dataset = open_dataset(id_, place(path));
  Hdf5Dataset found;

  const Handle type(H5Dget_type(dataset.get()), H5Tclose);
  const auto equal = std::find_if(kTypes.begin(), kTypes.end(), [&](Hdf5Type candidate) {
    return H5Tequal(type.get(), make_type(candidate).get()) > 0;
  });
  if (equal != kTypes.end()) found.type = *equal;

  const Handle space(H5Dget_space(dataset.get()), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0) throw failure(place(path), "has no shape", "an array");
  std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
  H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
  found.shape.assign(extents.begin(), extents.end());

  const Handle creation(H5Dget_create_plist(dataset.get()), H5Pclose);
  found.contiguous = H5Pget_layout(creation.get()) == H5D_CONTIGUOUS;
  found.stored_bytes = static_cast<std::int64_t>(H5Dget_storage_size(dataset.get()));
  if (found.contiguous) {
    const haddr_t offset = H5Dget_offset(dataset.get());
    if (offset != HADDR_UNDEF) found.offset = static_cast<std::int64_t>(offset);
  }
  return found;
}

void Hdf5File::read_bytes(const std::string& path, std::span<const std::int64_t> start,
                          std::span<const std::int64_t> count, Hdf5Type type,
                          std::span<std::byte> bytes) const {
  assert(bytes.size() == static_cast<std::size_t>(product(count)) * size_bytes(type));
  const Library library(file_);
  const Handle dataset = open_dataset(id_, place(path));
  const Handle file_type(H5Dget_type(dataset.get()), H5Tclose);
  const Handle memory_type = make_type(type);
  if (H5Tequal(file_type.get(), memory_type.get()) <= 0) {
    throw UserError(place(path), "holds values of another type", to_text(type));
  }
  const Handle space = select_box(dataset, place(path), start, count);
  if (bytes.empty()) return;
  if (H5Dread(dataset.get(), memory_type.get(), make_space(count).get(), space.get(), H5P_DEFAULT,
              bytes.data()) < 0) {
    throw failure(place(path), "cannot be read", "a sound data set");
  }
}

void Hdf5File::write_bytes(const std::string& path, std::span<const std::int64_t> start,
                           std::span<const std::int64_t> count, Hdf5Type type,
                           std::span<const std::byte> bytes) {
  assert(bytes.size() == static_cast<std::size_t>(product(count)) * size_bytes(type));
  const Library library(file_);
  Handle dataset = open_dataset(id_, place(path));
  const Handle space = select_box(dataset, place(path), start, count);
  if (bytes.empty()) return;
  if (H5Dwrite(dataset.get(), make_type(type).get(), make_space(count).get(), space.get(),
               H5P_DEFAULT, bytes.data()) < 0 ||
      !dataset.close_now()) {
    throw failure(place(path), "cannot be written", kRoom);
  }
}

}  // namespace kvreplay
