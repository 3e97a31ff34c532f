// Measures the disk that a file is on: the limit of experts that are read as tokens choose them.
#pragma once

#include <string>

#include "lib/support/result.h"

namespace ktx::tools {

// Bytes per second of reads of 1 MiB past the page cache, 32 at once, at places of the file in a
// random order, each read once, for two seconds or until all of it is read. Fails on files below
// 64 MiB, and where a read fails. A file system without direct reads is read through its cache.
Result<double> measure_disk_rate(const std::string& path);

}  // namespace ktx::tools
