# Writes OUT: the test files FILES, one after the other, to be compiled as one. Each file's unnamed namespaces
# become a namespace of its name within an unnamed one, so that two files may both have a `struct Case`. They are
# found by the form that clang-format gives them: a line `namespace {` and a line `}  // namespace`.
set(all "// Made by cmake/join_tests.cmake.\n")
foreach(path ${FILES})
  file(READ ${path} text)
  get_filename_component(name ${path} NAME_WE)
  string(REPLACE "\nnamespace {\n" "\nnamespace { namespace ${name} {\n" text "${text}")
  string(REPLACE "\n}  // namespace\n" "\n}}  // namespace\n" text "${text}")
  string(APPEND all "#line 1 \"${path}\"\n${text}")
endforeach()
file(WRITE ${OUT} "${all}")
