#include "cli/shell/input_history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

namespace carat::cli {

namespace {

constexpr size_t kMaxEntries = 1000;
constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxEntryBytes = 64 << 10;  // longer ones are pasted texts: in memory only

std::string escaped(std::string_view entry) {
  std::string line;
  for (const char character : entry) {
    if (character == '\n') {
      line += "\\n";
    } else if (character == '\\') {
      line += "\\\\";
    } else {
      line += character;
    }
  }
  return line += '\n';
}

std::string unescaped(std::string_view line) {
  std::string entry;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\' || i + 1 == line.size()) {
      entry += line[i];
      continue;
    }
    ++i;
    entry += line[i] == 'n' ? '\n' : line[i];
  }
  return entry;
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

// 0 or the error.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

// Opens for writing a plain file that only its owner can read; -1 and errno otherwise. Not blocking, which matters for
// what is no plain file.
int open_private(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | flags, 0600);
  if (descriptor < 0) return -1;
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || ::fchmod(descriptor, 0600) != 0) {
    const int error = S_ISREG(status.st_mode) ? errno : EINVAL;
    ::close(descriptor);
    errno = error;
    return -1;
  }
  return descriptor;
}

// The folders that are missing, readable by their owner only.
int make_folders(const std::filesystem::path& folder) {
  if (folder.empty() || ::access(folder.c_str(), F_OK) == 0) return 0;
  if (const int error = make_folders(folder.parent_path()); error != 0) return error;
  return ::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}

}  // namespace

std::string default_history_file() {
  // Relative paths are to be ignored, says the specification of these variables.
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + "/carat/history";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.local/state/carat/history";
  return "";
}

InputHistory::InputHistory(std::string file, Warn warn) : file_(std::move(file)), warn_(std::move(warn)) {
  if (!file_.empty()) load();
}

void InputHistory::give_up(std::string_view doing, int error) {
  if (warn_) {
    warn_(fmt::format("cannot {} the history {}: {}; what you type is forgotten after this chat", doing, file_,
                      std::strerror(error)));
  }
  file_.clear();
}

void InputHistory::load() {
  const Descriptor input(::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (input.get() < 0) {
    if (errno != ENOENT) give_up("read", errno);
    return;
  }
  struct stat status = {};
  if (::fstat(input.get(), &status) != 0) return give_up("read", errno);
  if (!S_ISREG(status.st_mode)) return give_up("read", S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
  const auto size = static_cast<size_t>(status.st_size);
  const size_t skipped = size > kMaxFileBytes ? size - kMaxFileBytes : 0;
  std::string text(size - skipped, '\0');
  size_t length = 0;
  while (length < text.size()) {
    const ssize_t got =
        ::pread(input.get(), text.data() + length, text.size() - length, static_cast<off_t>(skipped + length));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return give_up("read", errno);
    if (got == 0) break;
    length += static_cast<size_t>(got);
  }
  text.resize(length);
  // After a skipped part the first line is the end of one.
  size_t start = skipped == 0 ? 0 : text.find('\n') + 1;
  while (start < text.size()) {
    const size_t end = std::min(text.find('\n', start), text.size());
    if (end > start) entries_.push_back(unescaped(std::string_view(text).substr(start, end - start)));
    start = end + 1;
  }
  if (entries_.size() <= 2 * kMaxEntries && skipped == 0) return;
  if (entries_.size() > kMaxEntries) {
    entries_.erase(entries_.begin(), entries_.end() - static_cast<std::ptrdiff_t>(kMaxEntries));
  }
  rewrite_file();
}

// Through a file beside it, so that a crash leaves the old one.
void InputHistory::rewrite_file() {
  std::string text;
  for (size_t i = entries_.size(); i > 0; --i) {
    const std::string line = escaped(entries_[i - 1]);
    if (text.size() + line.size() > kMaxFileBytes / 2) break;
    text.insert(0, line);
  }
  const std::string beside = fmt::format("{}.{}", file_, ::getpid());
  const Descriptor output(open_private(beside, O_TRUNC));
  if (output.get() < 0) return give_up("shorten", errno);
  int error = write_all(output.get(), text);
  if (error == 0 && ::rename(beside.c_str(), file_.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(beside.c_str());
  give_up("shorten", error);
}

bool InputHistory::add(std::string_view entry) {
  if (entry.empty() || (!entries_.empty() && entries_.back() == entry)) return false;
  entries_.emplace_back(entry);
  if (!file_.empty() && entry.size() <= kMaxEntryBytes) append_to_file(entries_.back());
  return true;
}

void InputHistory::append_to_file(const std::string& entry) {
  if (const int error = make_folders(std::filesystem::path(file_).parent_path()); error != 0) {
    return give_up("make a folder for", error);
  }
  const Descriptor output(open_private(file_, O_APPEND));
  if (output.get() < 0) return give_up("write", errno);
  if (const int error = write_all(output.get(), escaped(entry)); error != 0) give_up("write", error);
}

}  // namespace carat::cli
