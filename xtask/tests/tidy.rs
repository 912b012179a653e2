// SPDX-License-Identifier: Apache-2.0
//! The rules of the house over the repository itself, one test each.

use std::sync::LazyLock;
use xtask::tidy::{self, Check, Tree};

static TREE: LazyLock<Tree> = LazyLock::new(|| Tree::of_repository().expect("the repository can be read"));

fn holds(check: Check) {
    let findings = check(&TREE);
    let said: String = findings.iter().map(|finding| format!("\n  {finding}")).collect();
    assert!(findings.is_empty(), "{} findings:{said}", findings.len());
}

#[test]
fn counts_of_the_language_are_within_their_limits() {
    let counts = tidy::counts::counts(&TREE);
    assert!(counts.iter().all(tidy::counts::Count::holds), "{}", tidy::counts::table(&counts));
    // Each check that is silent within its limit counts all the same.
    assert!(counts.iter().any(|count| count.number > 0), "{}", tidy::counts::table(&counts));
}

/// One test per check, and a list of them, so that none is forgotten.
macro_rules! rules {
    ($($name:ident = $check:path;)*) => {
        $(
            #[test]
            fn $name() {
                holds($check);
            }
        )*

        #[test]
        fn every_check_has_its_test() {
            let tested = [$(stringify!($name)),*].len();
            assert_eq!(tested, tidy::CHECKS.len());
        }
    };
}

rules! {
    arrows_between_crates_go_down = tidy::arrows::check;
    the_layer_table_agrees_with_the_workspace = tidy::arrows::check_table;
    every_crate_opts_in_to_the_lints = tidy::manifests::check_lints;
    crates_that_see_foreign_bytes_deny_panics = tidy::manifests::check_no_panic;
    no_crate_is_empty = tidy::manifests::check_empty;
    no_clock_below_the_data_plane = tidy::clocks::check;
    unsafe_stands_in_named_modules = tidy::unsafety::check;
    every_file_says_licence_and_purpose = tidy::files::check_headers;
    no_file_is_too_long = tidy::files::check_length;
    no_function_is_too_long = tidy::files::check_functions;
    nothing_of_one_machine_is_in_the_tree = tidy::files::check_paths;
    licences_of_dependencies_fit = tidy::licences::check;
    deny_toml_has_the_same_licences = tidy::licences::check_deny;
    every_keyword_and_protocol_is_in_its_table = tidy::tables::check;
    every_field_of_a_spec_is_read = tidy::specs::check;
    links_lead_somewhere = tidy::links::check;
    every_page_is_in_the_book = tidy::links::check_summary;
    invariants_name_what_keeps_them = tidy::invariants::check;
    the_floor_only_rises = tidy::floor::check;
    frames_of_tests_are_made_in_one_place = tidy::frames::check;
    test_helpers_stay_in_tests = tidy::arrows::check_helpers;
    no_circle_of_files_is_large = tidy::circles::check;
    folders_of_a_crate_use_those_below = tidy::folders::check;
    every_test_file_is_run_by_one_program_of_its_crate = tidy::programs::check;
    every_dependency_is_used = tidy::dependencies::check;
    no_comment_is_wider_than_the_code = tidy::comments::check_width;
    doc_lines_say_what_the_thing_is = tidy::comments::check_openings;
    a_type_has_a_name_of_its_own = tidy::names::check;
    functions_are_named_by_verbs_of_the_field = tidy::functions::check;
    few_parameters_are_tuples = tidy::parameters::check;
    pages_are_narrow_and_the_first_ones_short = tidy::pages::check;
}
