#include "batch/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "base/error.h"
#include "batch/batch_line.h"
#include "server/api/json_writer.h"

namespace carat::batch {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJsonLines = ".jsonl";
constexpr std::string_view kAnswered = " ok ";
constexpr std::string_view kFailed = " failed ";

[[noreturn]] void fail_io(const char* what, const std::string& path) {
  fail(ErrorCode::kIo, "cannot {} {}: {}", what, path, std::strerror(errno));
}

void write_all(int descriptor, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_io("write", path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

// The number of a line of an output file, whose id is the first thing in it; 0 where it is none.
uint64_t number_of(std::string_view record) {
  constexpr std::string_view kBegin = "{\"id\":\"batch_req_";
  uint64_t number = 0;
  if (!record.starts_with(kBegin) || !record.ends_with('}')) return 0;
  record.remove_prefix(kBegin.size());
  const auto [end, error] = std::from_chars(record.data(), record.data() + record.size(), number);
  return error == std::errc() && end != record.data() + record.size() && *end == '"' ? number : 0;
}

// Calls take(line, offset) for each whole line; returns where the first line begins that is not whole or not taken.
template <typename Take>
uint64_t for_each_line(const std::string& path, Take take) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_io("read", path);
  uint64_t offset = 0;
  for (std::string line; std::getline(file, line);) {
    if (file.eof() || !take(std::string_view(line), offset)) return offset;
    offset += line.size() + 1;
  }
  return offset;
}

void sync_folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);  // where a file system cannot do this, it has no need to
  ::close(descriptor);
}

}  // namespace

std::string BatchOutput::default_errors_path(const std::string& path) {
  const std::string_view stem =
      path.ends_with(kJsonLines) ? std::string_view(path).substr(0, path.size() - kJsonLines.size()) : path;
  return fmt::format("{}.errors{}", stem, kJsonLines);
}

BatchOutput::BatchOutput(const std::string& path, const std::string& errors_path, const BatchInput& input,
                         const std::string& model)
    : path_(path),
      errors_path_(errors_path),
      partial_path_(path + ".partial"),
      input_(input),
      model_(model),
      places_(input.lines().size()) {
  if (fs::exists(path_)) {
    if (!files_are_whole()) {
      fail(ErrorCode::kBadArgument,
           "{} is there already, and it is not the output of {} (shard {}); give another name, or remove it", path_,
           input_.path(), input_.shard().text());
    }
    is_finished_ = true;
    done_ = places_.size();
    failed_ = fs::exists(errors_path_) ? count_lines_of(errors_path_) : 0;
    // Left where the process was killed after the file had its name.
    ::unlink(partial_path_.c_str());
    return;
  }
  if (fs::exists(errors_path_) && !fs::exists(partial_path_)) {
    fail(ErrorCode::kBadArgument, "{} is there already, without {}; give another name with --errors, or remove it",
         errors_path_, path_);
  }
  open_partial();
  read_partial();
}

BatchOutput::OpenFile::~OpenFile() {
  if (descriptor >= 0) ::close(descriptor);
}

// Every line of the shard is in one of the two files, in its order and once.
bool BatchOutput::files_are_whole() const {
  const uint64_t failed = fs::exists(errors_path_) ? count_lines_of(errors_path_) : 0;
  return count_lines_of(path_) + failed == input_.lines().size();
}

// Counts what is as it should be: in order, and of this shard.
uint64_t BatchOutput::count_lines_of(const std::string& path) const {
  uint64_t count = 0, last = 0;
  const uint64_t read = for_each_line(path, [&](std::string_view line, uint64_t) {
    const uint64_t number = number_of(line);
    if (number <= last || index_of(number) == places_.size()) return false;
    last = number;
    ++count;
    return true;
  });
  return read == fs::file_size(path) ? count : std::numeric_limits<uint64_t>::max() / 4;
}

std::string BatchOutput::header() const {
  std::string text;
  server::JsonWriter(text)
      .begin_object()
      .field("carat_batch", 1)
      .field("input_bytes", input_.bytes())
      .field("input_hash", fmt::format("{:016x}", input_.hash()))
      .field("shard", input_.shard().text())
      .field("model", model_)
      .end_object();
  return text;
}

void BatchOutput::open_partial() {
  partial_.descriptor = ::open(partial_path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (partial_.descriptor < 0) fail_io("write", partial_path_);
  // Where a file system knows no locks, two processes on one output are the user's to avoid.
  if (::flock(partial_.descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    fail(ErrorCode::kBadArgument, "another process is writing {}; wait for it, or give another output", partial_path_);
  }
}

// What a process before this one has done. What is behind the first line that is not whole, because the process was
// killed while it wrote or the machine failed, is cut off and done again.
void BatchOutput::read_partial() {
  bool is_first = true;
  const auto refuse = [&](std::string_view line) {
    fail(ErrorCode::kBadArgument,
         "{} was begun with something else than {}, shard {}, with the model {}: its first line says {}; remove it to "
         "begin anew",
         partial_path_, input_.path(), input_.shard().text(), model_, line.substr(0, 300));
  };
  const uint64_t good = for_each_line(partial_path_, [&](std::string_view line, uint64_t offset) {
    if (!std::exchange(is_first, false)) return take_record(line, offset);
    if (line != header()) refuse(line);
    return true;
  });
  if (good == 0) {
    std::string begun(fs::file_size(partial_path_), '\0');
    std::ifstream(partial_path_, std::ios::binary).read(begun.data(), static_cast<std::streamsize>(begun.size()));
    if (!header().starts_with(begun)) refuse(begun);
  }
  if (fs::file_size(partial_path_) > good && ::ftruncate(partial_.descriptor, static_cast<off_t>(good)) != 0) {
    fail_io("shorten", partial_path_);
  }
  end_ = good;
  if (end_ > 0) return;
  const std::string line = header() + "\n";
  write_all(partial_.descriptor, line, partial_path_);
  end_ = line.size();
}

// "17 ok 120 {...}", with the number of bytes that follow. False: it is damaged.
bool BatchOutput::take_record(std::string_view line, uint64_t offset) {
  const char* const end = line.data() + line.size();
  uint64_t number = 0, bytes = 0;
  const auto [after_number, number_error] = std::from_chars(line.data(), end, number);
  std::string_view rest(after_number, static_cast<size_t>(end - after_number));
  const bool is_failure = rest.starts_with(kFailed);
  if (number_error != std::errc() || (!is_failure && !rest.starts_with(kAnswered))) return false;
  rest.remove_prefix(is_failure ? kFailed.size() : kAnswered.size());
  const auto [after_bytes, bytes_error] = std::from_chars(rest.data(), end, bytes);
  if (bytes_error != std::errc() || after_bytes == end || *after_bytes != ' ') return false;
  const std::string_view record(after_bytes + 1, static_cast<size_t>(end - after_bytes) - 1);
  const size_t index = index_of(number);
  if (record.size() != bytes || number_of(record) != number || index == places_.size() || is_done(index)) return false;
  places_[index] = {offset + (line.size() - record.size()), static_cast<uint32_t>(record.size()), is_failure};
  ++done_;
  failed_ += is_failure ? 1 : 0;
  return true;
}

size_t BatchOutput::index_of(uint64_t number) const {
  const auto& lines = input_.lines();
  const auto found =
      std::lower_bound(lines.begin(), lines.end(), number,
                       [](const BatchInput::Line& line, uint64_t wanted) { return line.number < wanted; });
  return found != lines.end() && found->number == number ? static_cast<size_t>(found - lines.begin()) : lines.size();
}

void BatchOutput::add(size_t line, bool is_failure, std::string_view record) {
  CARAT_CHECK(!is_done(line) && number_of(record) == input_.lines()[line].number);
  CARAT_CHECK(record.find('\n') == std::string_view::npos && record.size() < std::numeric_limits<uint32_t>::max());
  const std::string begin =
      fmt::format("{}{}{} ", input_.lines()[line].number, is_failure ? kFailed : kAnswered, record.size());
  write_all(partial_.descriptor, fmt::format("{}{}\n", begin, record), partial_path_);
  places_[line] = {end_ + begin.size(), static_cast<uint32_t>(record.size()), is_failure};
  end_ += begin.size() + record.size() + 1;
  ++done_;
  failed_ += is_failure ? 1 : 0;
}

void BatchOutput::sync() {
  if (partial_.descriptor >= 0 && ::fdatasync(partial_.descriptor) != 0 && errno != EINVAL && errno != EROFS) {
    fail_io("write", partial_path_);
  }
}

void BatchOutput::finish() {
  CARAT_CHECK(done_ == places_.size());
  // OUT comes last: where it is, everything is.
  if (failed_ > 0) write_file(errors_path_, true);
  write_file(path_, false);
  if (::unlink(partial_path_.c_str()) != 0) fail_io("remove", partial_path_);
  is_finished_ = true;
}

// The answered lines or the failed ones, in the input's order, under a name of their own until all of it is there.
void BatchOutput::write_file(const std::string& path, bool failures) const {
  constexpr size_t kPiece = size_t{1} << 20;
  const std::string unfinished = path + ".unfinished";
  const int to = ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (to < 0) fail_io("write", unfinished);
  try {
    std::string piece;
    for (const Place& place : places_) {
      if (place.is_failure != failures) continue;
      const size_t at = piece.size();
      piece.resize(at + place.bytes);
      for (size_t got = 0; got < place.bytes;) {
        const ssize_t read = ::pread(partial_.descriptor, piece.data() + at + got, place.bytes - got,
                                     static_cast<off_t>(place.offset + got));
        if (read < 0 && errno == EINTR) continue;
        if (read <= 0) fail_io("read", partial_path_);
        got += static_cast<size_t>(read);
      }
      piece += '\n';
      if (piece.size() < kPiece) continue;
      write_all(to, piece, unfinished);
      piece.clear();
    }
    write_all(to, piece, unfinished);
    if (::fsync(to) != 0) fail_io("write", unfinished);
  } catch (...) {
    ::close(to);
    throw;
  }
  if (::close(to) != 0) fail_io("write", unfinished);
  if (::rename(unfinished.c_str(), path.c_str()) != 0) fail_io("write", path);
  sync_folder_of(path);
}

}  // namespace carat::batch
