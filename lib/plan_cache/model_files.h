// What distinguishes a model's files from others, without reading them as a whole.
//
//   const auto files = KTX_TRY(files_of_model("m-00001-of-00002.gguf"));   // both shards
//   quick_key(files)     // no weight is read
//   content_key(files)   // samples are
//
// Two keys, because neither is enough alone. The quick key is made of each file's stat data
// (device, inode, size, both times) and of its first page: it finds an untouched file
// again, but none that was moved or copied. The content key has no path, device or inode: it
// is made of size, time of the last write, the first MiB (in most models the whole header) and 64
// samples of each file. The time alone is not enough: images and archives give all files the same
// one; nor are samples alone: two fine-tunes may differ in a few tensors. So `mv`, `cp -p` and
// `rsync -a` keep a plan, and `cp` or `touch` make another one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lib/support/result.h"

namespace ktx::plan_cache {

// The file, or all its shards where the name is that of one. They need not be there.
std::vector<std::string> files_of_model(const std::string& path);

// 32 hexadecimal digits. Fail where a file cannot be read; the message begins with its path.
Result<std::string> quick_key(std::span<const std::string> files);
Result<std::string> content_key(std::span<const std::string> files);

// Bytes of all files; 0 for those that are missing.
uint64_t size_of(std::span<const std::string> files);

// "dir/model-00001-of-00003.gguf" -> "model": of the plan, as a file name.
std::string name_of_model(const std::string& path);

}  // namespace ktx::plan_cache
