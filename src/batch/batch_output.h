#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "batch/batch_input.h"

namespace carat::batch {

// What a batch has written. While it runs, finished lines are appended to OUT.partial in the order they come, each with
// one write, so that what the process had done is there after kill -9; finish() makes the files of it, in the input's
// order: OUT with the lines that were answered, and the errors' file where lines failed. A file that is there is whole.
class BatchOutput {
 public:
  // What `path` holds of this input, from the same or an earlier process. `model` is what the lines are asked of.
  // Throws kBadArgument where the files belong to another batch or another process is writing them, kIo where they
  // cannot be read or written.
  BatchOutput(const std::string& path, const std::string& errors_path, const BatchInput& input,
              const std::string& model);
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;

  // The files are there; nothing is left to do.
  bool is_finished() const { return is_finished_; }
  bool is_done(size_t line) const { return places_[line].bytes > 0; }  // by its index in the input's lines()
  uint64_t done() const { return done_; }
  uint64_t failed() const { return failed_; }

  // Once for each line that is not done. `record` is its line of the output.
  void add(size_t line, bool is_failure, std::string_view record);
  // What was added is on the disk, even if the machine fails now.
  void sync();
  // All lines are done: writes the files and removes OUT.partial.
  void finish();

  const std::string& partial_path() const { return partial_path_; }
  // The file for lines that failed: OUT.errors.jsonl for OUT.jsonl.
  static std::string default_errors_path(const std::string& path);

 private:
  struct OpenFile {
    ~OpenFile();
    int descriptor = -1;
  };
  // Where the record of a line is in OUT.partial.
  struct Place {
    uint64_t offset = 0;
    uint32_t bytes = 0;  // 0: it is not there
    bool is_failure = false;
  };

  bool files_are_whole() const;
  uint64_t count_lines_of(const std::string& path) const;
  std::string header() const;
  void open_partial();
  void read_partial();
  bool take_record(std::string_view line, uint64_t offset);
  size_t index_of(uint64_t number) const;
  void write_file(const std::string& path, bool failures) const;

  const std::string path_, errors_path_, partial_path_;
  const BatchInput& input_;
  const std::string model_;
  OpenFile partial_;
  uint64_t end_ = 0;  // of OUT.partial
  std::vector<Place> places_;
  uint64_t done_ = 0, failed_ = 0;
  bool is_finished_ = false;
};

}  // namespace carat::batch
