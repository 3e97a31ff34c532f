# cmake -DIN=index.html -DOUT=web_page_data.cc -P embed_page.cmake: a file as a C++ array.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
file(WRITE ${OUT} "#include \"lib/server/web_page.h\"\n\nnamespace ktx::server {\n\n\
static const char kPage[] = {${bytes}'\\0'};\n\n\
std::string_view web_page() {\n  return {kPage, sizeof kPage - 1};\n}\n\n}  // namespace ktx::server\n")
