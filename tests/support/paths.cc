#include "tests/support/paths.h"

namespace ktx {

const std::string& source_dir() {
  static const std::string dir = KTX_SOURCE_DIR;
  return dir;
}
const std::string& binary_dir() {
  static const std::string dir = KTX_BINARY_DIR;
  return dir;
}
const std::string& shared_dir() {
  static const std::string dir = source_dir() + "/../shared";
  return dir;
}
bool sanitized() {
  return std::string(KTX_SANITIZED) != "";
}

}  // namespace ktx
