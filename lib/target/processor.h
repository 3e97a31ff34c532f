// Which processor this machine has, for what instruction sets (isa.h) do not say.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ktx {

struct Processor {
  std::string vendor;   // 12 characters, such as "AuthenticAMD" (CPUID leaf 0)
  unsigned family = 0;  // the extended one (leaf 1)
};

// Read once; an empty vendor where there is no CPUID, or it does not say.
const Processor& this_processor();

// What was measured on a vendor's processors.
template <class T>
struct ProcessorRow {
  std::string_view vendor;
  unsigned first_family;  // and later ones
  T value;
};

// The value of the first row that fits, where the latest families come first; else `other`.
template <class T>
T of_processor(std::span<const ProcessorRow<T>> rows, std::string_view vendor, unsigned family,
               T other) {
  for (const ProcessorRow<T>& row : rows) {
    if (vendor == row.vendor && family >= row.first_family) return row.value;
  }
  return other;
}

}  // namespace ktx
