"""Acceptance of the test server by py4heappe, HEAppE's own client, unpatched.

    python judge.py URL USER PASSWORD

Runs in its own environment (``tools/environment py4heappe``), so it imports none of our code.
Prints each action on a line; an answer that py4heappe does not accept raises.
"""

import json
import sys
import time

from py4heappe.heappe_v6 import core as hp

PARAMETERS = ("args_b64", "args_b64_2", "args_b64_3", "args_b64_4")


def wait_for(what, ask):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if (found := ask()) is not None:
            print(what, flush=True)
            return found
        time.sleep(0.1)
    raise SystemExit(f"{what}: not in 30 s")


def specification(cluster, kind, project, template):
    values = [
        hp.CommandTemplateParameterValueExt(
            command_parameter_identifier=name, parameter_value="e30"
        )
        for name in PARAMETERS
    ]
    task = hp.TaskSpecificationExt(
        name="engine", min_cores=1, max_cores=8, walltime_limit=600, progress_file="progress.txt",
        log_file="log.txt", cluster_node_type_id=kind.id, command_template_id=template.id,
        template_parameter_values=values,
    )  # fmt: skip
    return hp.JobSpecificationExt(
        name="judged", project_id=project.id, cluster_id=cluster.id,
        file_transfer_method_id=kind.file_transfer_method_id, tasks=[task],
    )  # fmt: skip


def submitted(client, user, password):
    users = hp.UserAndLimitationManagementApi(client)
    clusters = hp.ClusterInformationApi(client)
    jobs = hp.JobManagementApi(client)
    given = hp.PasswordCredentialsExt(username=user, password=password)
    code = users.heappe_user_and_limitation_management_authenticate_user_password_post(
        hp.AuthenticateUserPasswordModel(credentials=given)
    )
    assert len(code) == 36
    print("logged in", hp.HealthApi(client).heappe_health_get().version)
    found = users.heappe_user_and_limitation_management_projects_for_current_user_get(
        session_code=code
    )
    print("projects", sorted({reference.project.accounting_string for reference in found}))
    cluster = clusters.heappe_cluster_information_list_available_clusters_get(session_code=code)[0]
    kind = cluster.node_types[0]
    project = kind.projects[0]
    usage = clusters.heappe_cluster_information_current_cluster_node_usage_get(
        session_code=code, cluster_node_id=kind.id, project_id=project.id
    )
    print("cluster", cluster.name, kind.name, usage.number_of_nodes)
    spec = specification(cluster, kind, project, project.command_templates[0])
    job = jobs.heappe_job_management_create_job_post(
        hp.CreateJobByProjectModel(session_code=code, job_specification=spec)
    )
    jobs.heappe_job_management_submit_job_put(
        hp.SubmitJobModel(session_code=code, created_job_info_id=job.id)
    )

    return code, job


def main(url, user, password):
    client = hp.ApiClient(hp.Configuration(host=url))
    code, job = submitted(client, user, password)
    jobs = hp.JobManagementApi(client)
    files = hp.FileTransferApi(client)
    data = hp.DataTransferApi(client)

    def running():
        info = jobs.heappe_job_management_current_info_for_job_get(
            session_code=code, submitted_job_info_id=job.id
        )
        return info if info.state.value == 8 else None

    task = wait_for("running", running).tasks[0].id
    listed = jobs.heappe_job_management_list_jobs_for_current_user_get(
        session_code=code, job_states="4,8"
    )
    assert [one.id for one in listed] == [job.id]
    host = jobs.heappe_job_management_allocated_nodes_ips_get(
        session_code=code, submitted_task_info_id=task
    )[0]

    def port():
        offset = hp.TaskFileOffsetExt(submitted_task_info_id=task, file_type=1, offset=0)
        parts = files.heappe_file_transfer_download_parts_of_job_files_from_cluster_post(
            hp.DownloadPartsOfJobFilesFromClusterModel(
                session_code=code, submitted_job_info_id=job.id, task_file_offsets=[offset]
            )
        )
        return int(parts[0].content) if parts else None

    number = wait_for("listening", port)
    tunnel = data.heappe_data_transfer_request_data_transfer_post(
        hp.GetDataTransferMethodModel(
            session_code=code, submitted_task_info_id=task, ip_address=host, port=number
        )
    )
    traffic(data, code, task, tunnel)
    data.heappe_data_transfer_close_data_transfer_post(
        hp.EndDataTransferModel(session_code=code, used_transfer_method=tunnel)
    )
    jobs.heappe_job_management_cancel_job_put(
        hp.CancelJobModel(session_code=code, submitted_job_info_id=job.id)
    )

    def ended():
        info = jobs.heappe_job_management_current_info_for_job_get(
            session_code=code, submitted_job_info_id=job.id
        )
        return info if info.state.value in (32, 64) else None

    wait_for("cancelled", ended)
    answer = jobs.heappe_job_management_delete_job_delete(
        hp.DeleteJobModel(session_code=code, submitted_job_info_id=job.id, archive_logs=False)
    )
    print(answer)


def traffic(data, code, task, tunnel):
    where = {
        "session_code": code, "submitted_task_info_id": task, "node_ip_address": tunnel.node_ip_address,
        "node_port": tunnel.node_port,
    }  # fmt: skip
    accept = hp.HTTPHeaderExt(name="Accept", value="*/*")
    text = data.heappe_data_transfer_http_get_to_job_node_post(
        hp.HttpGetToJobNodeModel(http_request="/v1/models", http_headers=[accept], **where)
    )
    print("models", [model["id"] for model in json.loads(text)["data"]])
    kind = hp.HTTPHeaderExt(name="content-type", value="application/json")
    asked = {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 4,
        "stream": True,
        "pause_ms": 20,
    }
    model = hp.HttpPostToJobNodeModel(
        http_request="/v1/chat/completions",
        http_headers=[kind],
        http_payload=json.dumps(asked),
        **where,
    )
    stream = data.heappe_data_transfer_http_post_to_job_node_stream_post_without_preload_content(
        model
    )
    body = b"".join(stream.stream())
    assert body.endswith(b"data: [DONE]\n\n"), body
    print("streamed", body.count(b"data: "))
    text = data.heappe_data_transfer_http_post_to_job_node_post(
        hp.HttpPostToJobNodeModel(
            http_request="/v1/chat/completions",
            http_headers=[kind],
            http_payload=json.dumps(asked | {"stream": False}),
            **where,
        )
    )
    print("posted", json.loads(text)["usage"]["completion_tokens"])


if __name__ == "__main__":
    main(*sys.argv[1:])
