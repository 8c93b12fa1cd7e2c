# cmake -D OUT=page_files.cc -D FOLDER=src/server/page -D FILES=index.html,main.js -D WORK=DIR -P embed_page.cmake:
# writes a C++ file that holds these files, plain and compressed by gzip, each with the hash of its content. Comments, indentation
# and blanks of the style sheet are left out of what is sent; nothing else is changed. CMake does all of it: no other program is needed.
string(REPLACE "," ";" FILES "${FILES}")
set(ENV{SOURCE_DATE_EPOCH} 0)  # the compressed bytes say no time, so that equal sources give equal programs
file(MAKE_DIRECTORY ${WORK})

# A list of numbers for an initialiser, in lines of a readable length.
function(bytes_of path out)
  file(READ ${path} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  set(${out} "${hex}" PARENT_SCOPE)
endfunction()

# What is sent of a file.
function(without_comments path out)
  file(READ ${path} text)
  string(REGEX REPLACE "\n[ \t]+" "\n" text "\n${text}")
  if(path MATCHES "\\.js$")
    string(REGEX REPLACE "\n//[^\n]*" "" text "${text}")
    string(REGEX REPLACE "  // [^\n]*" "" text "${text}")
  elseif(path MATCHES "\\.css$")
    string(REGEX REPLACE "/\\*[^*]*\\*/" "" text "${text}")
    string(REGEX REPLACE " *([{}]) *" "\\1" text "${text}")
    string(REGEX REPLACE "([;:,]) +" "\\1" text "${text}")
  endif()
  string(REGEX REPLACE "\n\n+" "\n" text "${text}")
  string(SUBSTRING "${text}" 1 -1 text)
  file(WRITE ${out} "${text}")
endfunction()

set(arrays "")
set(rows "")
set(number 0)
foreach(name IN LISTS FILES)
  without_comments(${FOLDER}/${name} ${WORK}/${name})
  file(ARCHIVE_CREATE OUTPUT ${WORK}/${name}.gz PATHS ${WORK}/${name} FORMAT raw COMPRESSION GZip)
  file(SHA256 ${WORK}/${name} hash)
  string(SUBSTRING ${hash} 0 24 hash)
  bytes_of(${WORK}/${name} plain)
  bytes_of(${WORK}/${name}.gz packed)
  string(APPEND arrays "constexpr unsigned char kPlain${number}[] = {\n${plain}};\n"
    "constexpr unsigned char kPacked${number}[] = {\n${packed}};\n")
  string(APPEND rows "    {\"${name}\", \"${hash}\", bytes(kPlain${number}), bytes(kPacked${number})},\n")
  math(EXPR number "${number} + 1")
endforeach()

file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [=[
// Made by cmake/embed_page.cmake from src/server/page.
#include "server/page_files.h"

namespace carat::server {

namespace {

template <size_t N>
std::string_view bytes(const unsigned char (&data)[N]) {
  return {reinterpret_cast<const char*>(data), N};
}

@arrays@
const PageFile kFiles[] = {
@rows@};

}  // namespace

std::span<const PageFile> page_files() { return kFiles; }

}  // namespace carat::server
]=])
