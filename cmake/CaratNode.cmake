# Node and npm, for tests only. Sets CARAT_NODE, CARAT_NPM, and CARAT_NODE_MISSING, the reason why tests that need them are
# skipped; it is empty where they can run.
find_program(CARAT_NODE NAMES node nodejs DOC "Node 20 or newer, for tests with npm packages")
find_program(CARAT_NPM NAMES npm DOC "npm, for tests with npm packages")

set(CARAT_NODE_MISSING "no Node 20")
if(CARAT_NODE AND CARAT_NPM)
  execute_process(COMMAND ${CARAT_NODE} --version OUTPUT_VARIABLE CARAT_NODE_VERSION OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(CARAT_NODE_VERSION MATCHES "^v([0-9]+)" AND CMAKE_MATCH_1 GREATER_EQUAL 20)
    set(CARAT_NODE_MISSING "")
  endif()
endif()

# carat_npm_packages(name): the test <name>.install, which brings the packages of this folder's package-lock.json into its
# node_modules; tests with FIXTURES_REQUIRED <name>_packages run after it.
function(carat_npm_packages name)
  add_test(NAME ${name}.install COMMAND ${CMAKE_COMMAND} -D NPM=${CARAT_NPM} -D FOLDER=${CMAKE_CURRENT_SOURCE_DIR}
    -P ${CMAKE_SOURCE_DIR}/cmake/npm_install.cmake)
  set_tests_properties(${name}.install PROPERTIES FIXTURES_SETUP ${name}_packages LABELS ${name} TIMEOUT 900)
endfunction()
