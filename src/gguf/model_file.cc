#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "gguf/limits.h"
#include "gguf/printable.h"
#include "gguf/reader.h"
#include "gguf/split_name.h"

namespace carat::gguf {

namespace {

// Runs `action`; an error in it gets the path in front.
template <typename Action>
auto about_file(const std::string& path, Action&& action) {
  try {
    return action();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", path, error.what()));
  }
}

// The number of parts this model consists of. The name and the split.count key must agree, because a missing key or a
// renamed part would otherwise look like a model with missing tensors.
uint32_t part_count(const Header& header, const std::optional<SplitName>& name) {
  const uint64_t count = header.metadata.unsigned_integer("split.count").value_or(1);
  if (count == 0 || count > limits::kMaxSplits) {
    fail(ErrorCode::kBadFile, "split.count is {}, but must be 1 to {}", count, limits::kMaxSplits);
  }
  if (count == 1 && name && name->count > 1) {
    fail(ErrorCode::kBadFile, "the name says part {} of {}, but the file holds a whole model; rename it", name->part,
         name->count);
  }
  if (count > 1 && (!name || name->count != count || name->part == 0 || name->part > count)) {
    fail(ErrorCode::kBadFile,
         "split.count is {}, but the name does not end in -0000N-of-{:05}.gguf; give the parts their names back", count,
         count);
  }
  return static_cast<uint32_t>(count);
}

void check_part(const Header& header, uint32_t part, uint32_t count) {
  const auto number = header.metadata.unsigned_integer("split.no");
  if (!number) fail(ErrorCode::kBadFile, "the key split.no is missing, but the file is one of {} parts", count);
  if (*number != part - 1) {
    fail(ErrorCode::kBadFile, "split.no is {}, but the name says part {} of {} (split.no {})", *number, part, count,
         part - 1);
  }
  const auto stated = header.metadata.unsigned_integer("split.count");
  if (!stated || *stated != count) {
    fail(ErrorCode::kBadFile, "split.count is {}, but the other parts say {}",
         stated ? std::to_string(*stated) : "missing", count);
  }
}

}  // namespace

std::shared_ptr<const ModelFile> ModelFile::open(const std::string& path) {
  const std::shared_ptr<ModelFile> model(new ModelFile);  // make_shared cannot reach the private constructor
  model->path_ = path;
  model->add_file(path);
  const std::optional<SplitName> name = parse_split_name(path);
  const uint32_t count = about_file(path, [&] { return part_count(model->first_header(), name); });
  if (count > 1) {
    model->files_.clear();
    model->headers_.clear();
    for (uint32_t part = 1; part <= count; ++part) {
      const std::string part_path = name->path_of(part);
      try {
        model->add_file(part_path);
      } catch (const Error& error) {
        fail(error.code(), "{} (the model has {} parts, which must all be in one folder)", error.what(), count);
      }
      about_file(part_path, [&] { check_part(model->headers_.back(), part, count); });
    }
  }
  about_file(path, [&] { model->index_tensors(); });
  return model;
}

void ModelFile::add_file(const std::string& path) {
  files_.emplace_back(path);
  headers_.push_back(about_file(path, [&] { return parse(files_.back().bytes()); }));
}

void ModelFile::index_tensors() {
  for (size_t part = 0; part < files_.size(); ++part) {
    const auto data = files_[part].bytes();
    for (const TensorInfo& info : headers_[part].tensors) {
      if (!index_.emplace(info.name, tensors_.size()).second) {
        fail(ErrorCode::kBadFile, "tensor {} is in two parts of the model", printable(info.name));
      }
      tensors_.push_back({info, data.subspan(headers_[part].data_start + info.offset, info.bytes)});
    }
  }
  const auto stated = metadata().unsigned_integer("split.tensors.count");
  if (files_.size() > 1 && stated && *stated != tensors_.size()) {
    fail(ErrorCode::kBadFile, "split.tensors.count is {}, but the {} parts hold {} tensors", *stated, files_.size(),
         tensors_.size());
  }
}

const TensorView* ModelFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void ModelFile::read(std::span<const std::byte> view, std::byte* to) const {
  const std::less_equal<const std::byte*> not_after;  // the parts are unrelated objects, which < does not order
  for (const MappedFile& file : files_) {
    const std::byte* begin = file.bytes().data();
    if (!not_after(begin, view.data()) || !not_after(view.data() + view.size(), begin + file.bytes().size())) continue;
    return file.read(static_cast<size_t>(view.data() - begin), {to, view.size()});
  }
  CARAT_CHECK(false);  // not a view into this model
}

uint64_t ModelFile::file_bytes() const {
  uint64_t total = 0;
  for (const MappedFile& file : files_) total += file.bytes().size();
  return total;
}

void ModelFile::check_unchanged() const {
  for (const MappedFile& file : files_) file.check_unchanged();
}

}  // namespace carat::gguf
